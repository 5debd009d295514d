"""A Python function that the operator allowed, called as TRL calls its reward functions."""

import importlib
from collections.abc import Callable, Mapping
from functools import cache

from worker.rewards.completion import BrokenContract, Completion, in_words

Scores = Callable[..., object]


class FunctionUnavailable(Exception):
    """The module cannot be imported, or it has no such function."""


@cache
def load_function(name: str) -> Scores:
    """The function that `module:function` names. Raises FunctionUnavailable."""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except BaseException as error:  # somebody's module: its import may end in anything
        raise FunctionUnavailable(f"{name} cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise FunctionUnavailable(f"{name} is not a function but a value of type {in_words(found)}")
    return found  # type: ignore[no-any-return]  # what it returns is checked at every call


def python_score(completion: Completion, *, function: str) -> object:
    """What `function` gives one completion: the one number in the list that it returns.

    A chat is given as its messages and the completion as the assistant's; a raw prompt and its completion are texts. Every
    column of the item's row is a list of one, like them. Raises BrokenContract for anything but a list of one.
    """
    columns: Mapping[str, object] = {"answer": completion.answer, **completion.columns}
    text = completion.text
    answer = text if isinstance(completion.prompt, str) else [{"role": "assistant", "content": text}]
    given = {name: [value] for name, value in columns.items()} | {
        "prompts": [completion.prompt],
        "completions": [answer],
    }
    scores = load_function(function)(**given)
    if not isinstance(scores, list | tuple) or len(scores) != 1:
        raise BrokenContract(
            "a list of one number, since it is given one completion", f"a value of type {in_words(scores)}"
        )
    return scores[0]
