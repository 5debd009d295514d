"""Reasoning Gym's own verifiers. Imported only if a run needs them: the library takes seconds."""

import ast
from functools import lru_cache

from reasoning_gym.factory import get_score_answer_fn

_score_function = lru_cache(maxsize=None)(get_score_answer_fn)
_entry = lru_cache(maxsize=1024)(ast.literal_eval)

# What the library's parsers raise on texts that hold no answer; a verifier that works on its reference was checked.
_UNREADABLE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    SyntaxError,
    TypeError,
    ValueError,
)


def gym_score(answer: str, dataset: str, entry: str) -> float:
    """The generator's own score of an answer to one of its items, from 0 to 1; `entry` is the item as a literal."""
    item = _entry(entry)
    try:
        return float(_score_function(dataset)(answer, item))
    except _UNREADABLE:
        return 0.0
