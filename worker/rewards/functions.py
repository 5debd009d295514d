"""The pure reward functions, and the table that finds them by their kind."""

import asyncio
import importlib
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TypedDict

from backend.contract.answers import ANSWERS, find_answer
from backend.contract.reading import FIRST, NEWEST
from backend.contract.verdicts import Unclear, is_words, match_of, numeric_verdict, reference_in, text_verdict
from worker.rewards.answers import reaches, same_number
from worker.rewards.own_modules import NO_COLUMNS, RESERVED, VERL


class Verifier(TypedDict, total=False):
    """How a task checks an answer: `kind` is exact, numeric, countdown or reasoning_gym, the rest belongs to the kind.

    Of `accepted` references each is right; with a `problem` nothing can be compared.
    """

    kind: str
    accepted: list[str]
    problem: str
    numbers: list[int]
    target: int
    dataset: str
    entry: str


@dataclass(frozen=True)
class Completion:
    """A completion's text and length in tokens, the reference answer, and the task's own verifier.

    `prompt_end` is what the model read last; runs from before it counted have none.
    The rest is there for the functions of a person's own: `prompt` (chat messages, or a raw text), the `question` as the task
    words it, `columns` (the row of a data set) and `ids` (the completion's tokens, None if they are not known).
    """

    text: str
    token_count: int
    answer: str | None
    verifier: Verifier
    prompt: str | Sequence[Mapping[str, str]] = ""
    question: str = ""
    columns: Mapping[str, object] = field(default_factory=dict)
    ids: Sequence[int] | None = None
    prompt_end: str = ""


class BrokenContract(Exception):
    """A function returned something else than a score: what was expected, and what came instead."""

    def __init__(self, expected: str, got: str) -> None:
        super().__init__(f"expected {expected}, got {got}")
        self.expected, self.got = expected, got


def kind_and_length(value: object) -> str:
    """A value's type, and its length if it has one."""
    length = f" of length {len(value)}" if isinstance(value, str | list | tuple | dict) else ""
    return f"{type(value).__name__}{length}"


def correctness_score(completion: Completion, *, extract: str, match: str, reading: int = FIRST) -> float | Unclear:
    """1 if the extracted answer matches, else 0; a task with a verifier of its own may give a part of 1.

    Raises ValueError if there is nothing to compare with: that is the data's fault, not the completion's.
    """
    how = completion.verifier["kind"] if match == "task" else match
    if reading > FIRST and how in ("exact", "numeric", "symbolic"):
        if "problem" in completion.verifier:
            raise ValueError(completion.verifier["problem"])
        references = completion.verifier.get("accepted") or [_reference(completion)]
        verdicts = [
            _verdict(completion.text, one, extract, match_of(one) if match == "task" else how) for one in references
        ]
        best = max(verdicts, key=lambda verdict: (verdict is True, isinstance(verdict, Unclear)))
        return best if isinstance(best, Unclear) else float(best)
    answer = find_answer(completion.text, extract)
    if answer is None:
        return 0.0
    match how:
        case "countdown":
            return float(reaches(answer, completion.verifier["numbers"], completion.verifier["target"]))
        case "reasoning_gym":
            from worker.rewards.gym import gym_score  # seconds to import, and few runs need it

            return gym_score(answer, completion.verifier["dataset"], completion.verifier["entry"])
        case "exact":
            return float(answer == _reference(completion).strip())
        case "numeric":
            return float(same_number(answer, _reference(completion)))
        case "symbolic":
            from worker.rewards.symbolic import same_value  # the same

            return float(same_value(answer, _reference(completion)))
        case _:
            raise ValueError(f"there is no way {how!r} to compare answers")


def _verdict(text: str, reference: str, extract: str, how: str) -> bool | Unclear:
    """What a person would say of the answer. The reference is looked at first: whether it can be compared depends on it alone."""
    if how == "numeric" and is_words(reference_in(reference)):
        how = "exact"
    compare = text_verdict if how == "exact" else numeric_verdict
    if how == "symbolic":
        from worker.rewards.symbolic import value_verdict as compare  # seconds to import

    compare("", reference)
    answer = find_answer(text, extract, NEWEST)
    return False if answer is None else compare(answer, reference)


def _reference(completion: Completion) -> str:
    if completion.answer is None:
        raise ValueError("the item has no reference answer to compare with")
    return completion.answer


def format_score(completion: Completion, *, tags: Sequence[str]) -> float:
    """1 if the text is <a>…</a><b>…</b> for the tags a, b, … in order, with only white space outside them; else 0.

    An <a> with which the prompt ends, as many templates open <think>, is the text's.
    """
    text, opening = completion.text, f"<{tags[0]}>"
    if completion.prompt_end.rstrip().endswith(opening) and not text.lstrip().startswith(opening):
        text = opening + text
    if any(text.count(mark) != 1 for tag in tags for mark in (f"<{tag}>", f"</{tag}>")):
        return 0.0
    parts = r"\s*".join(f"<{tag}>.*?</{tag}>" for tag in map(re.escape, tags))
    return float(re.fullmatch(rf"\s*{parts}\s*", text, re.DOTALL) is not None)


def length_score(completion: Completion, *, unit: str, minimum: int, maximum: int, ramp: int) -> float:
    """1 from `minimum` to `maximum`, falling in a straight line to 0 at `ramp` outside; `unit` is what is counted."""
    text = completion.text
    length = completion.token_count if unit == "tokens" else len(text.split() if unit == "words" else text)
    outside = max(minimum - length, length - maximum, 0)
    return max(0.0, 1 - outside / ramp)


def pattern_score(completion: Completion, *, syntax: str, patterns: Sequence[str], case_sensitive: bool) -> float:
    """The share of `patterns` found in the text.

    A regular expression may backtrack for ever: it holds the interpreter all the while, and only the end of its
    process stops it.
    """
    if syntax == "keyword":
        text = completion.text if case_sensitive else completion.text.casefold()
        found = [(pattern if case_sensitive else pattern.casefold()) in text for pattern in patterns]
    else:
        flags = re.NOFLAG if case_sensitive else re.IGNORECASE
        found = [re.search(pattern, completion.text, flags) is not None for pattern in patterns]
    return sum(found) / len(found)


Scores = Callable[..., object]


class FunctionUnavailable(Exception):
    """The module cannot be imported, or it has no such function."""


@cache
def load_function(name: str) -> Scores:
    """The function that `module:function` or `file.py:function` names. Raises FunctionUnavailable."""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module.removesuffix(".py")), attribute)
    except BaseException as error:  # somebody's module: its import may end in anything
        raise FunctionUnavailable(f"{name} cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise FunctionUnavailable(f"{name} is not a function but a value of type {kind_and_length(found)}")
    return found  # type: ignore[no-any-return]  # what it returns is checked at every call


def require_settings(name: str, arguments: Mapping[str, object]) -> None:
    """Raises FunctionUnavailable for the first argument that the function does not take."""
    names, required, _, takes_all = _parameters(load_function(name))
    for argument in arguments:
        if argument in RESERVED or argument in required:
            raise FunctionUnavailable(f"{name} gets {argument!r} with each call: take it out of the arguments")
        if argument not in names and not takes_all:
            raise FunctionUnavailable(
                f"{name} has no parameter {argument!r}: take it out of the arguments, or give it one"
            )


def python_scores(
    completions: Sequence[Completion], *, function: str, arguments: Mapping[str, object]
) -> Sequence[object]:
    """What `function` says of each of these completions of one prompt, in one call.

    A function with the parameter `completion` is called for each text by itself, with `prompt`, the columns of the item's row by
    name, and `answer`: the reference answer, or the column of that name if there is none. It returns a number. So is one with
    verl's `solution_str`, which may return `{"score": …}`. Any other is called as TRL calls a reward function: `prompts`,
    `completions`, `completion_ids` and every column are lists, one entry a completion, a chat as its messages, and so is what it
    returns. A parameter that is called like one of the ANSWERS, but not like a column or a setting, is the answer, too.
    Raises BrokenContract for anything else, LookupError if the data lacks a column that it takes, or the tokens are not known.
    """
    scorer = load_function(function)
    names, required, open_, takes_all = _parameters(scorer)

    def call(given: Mapping[str, object]) -> object:
        given = {**arguments, **given}  # a column wins over the default that a form wrote
        if missing := [name for name in required if name not in given]:
            raise LookupError(f"it takes {missing[0]}, and what it is called with is {', '.join(given)}")
        result = scorer(**{name: _fresh(value) for name, value in given.items() if takes_all or name in names})
        return asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result

    answers = [one.columns.get("answer") if one.answer is None else one.answer for one in completions]
    of_verl = VERL in names and "completions" not in names
    asked = [name for name in ANSWERS if (name in open_ or (of_verl and takes_all)) and name not in arguments]
    if "completion" in names or of_verl:
        alone = []
        for one, answer in zip(completions, answers, strict=True):
            given = {**dict.fromkeys(asked, answer), **_columns(one)}
            given |= {"completion": one.text, "prompt": one.question, "answer": answer}
            if of_verl:  # a struct that became columns with a dot is one again
                apart = {tuple(name.split(".", 1)): value for name, value in given.items()}
                info = {name[1]: value for name, value in apart.items() if name[0] == "extra_info" and len(name) == 2}
                given = {"data_source": "", "extra_info": info, **given, VERL: one.text}
            alone.append(call(given))
        return [one.get("score", one) if of_verl and isinstance(one, dict) else one for one in alone]
    if "completion_ids" in names and completions[0].ids is None:
        raise LookupError("it takes completion_ids, which no sample keeps: press Sample again, and new ones are scored")
    scores = call(
        {**{name: answers for name in asked if name != "answer"}, **_batch(completions, with_answer="answer" in names)}
    )
    scores = scores.tolist() if hasattr(scores, "tolist") else scores  # of NumPy or torch
    if not isinstance(scores, list | tuple) or len(scores) != len(completions):
        count = "one number, since it is given one completion"
        if len(completions) > 1:
            count = f"{len(completions)} numbers, one for each completion"
        raise BrokenContract(f"a list of {count}", f"a value of type {kind_and_length(scores)}")
    return scores


def _batch(completions: Sequence[Completion], *, with_answer: bool) -> dict[str, object]:
    """The lists of one call, in the order of TRL's; the reference answer only if no column has it."""
    columns = [_columns(one) for one in completions]
    prompts = [one.prompt for one in completions]
    texts = [
        one.text if isinstance(one.prompt, str) else [{"role": "assistant", "content": one.text}] for one in completions
    ]
    given: dict[str, object] = {
        "prompts": prompts,
        "completions": texts,
        "completion_ids": [one.ids for one in completions],
        **{name: [row[name] for row in columns] for name in columns[0]},
    }
    if "answer" not in given and (with_answer or not columns[0]):
        given["answer"] = [one.answer for one in completions]
    return given


def _fresh(value: object) -> object:
    """A copy of what is JSON: what a function changes, the next one gets unchanged."""
    if isinstance(value, list):
        return [_fresh(one) for one in value]
    return {name: _fresh(one) for name, one in value.items()} if isinstance(value, dict) else value


def _columns(completion: Completion) -> dict[str, object]:
    return {name: value for name, value in completion.columns.items() if name not in NO_COLUMNS}


async def _awaited(result: Awaitable[object]) -> object:
    return await result


@cache
def _parameters(function: Scores) -> tuple[frozenset[str], Sequence[str], frozenset[str], bool]:
    """A function's parameters, those without a default, these and those whose default is None, and whether it takes any other."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of some that are written in C
        return frozenset(), (), frozenset(), True
    named = [one for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    required = [one.name for one in named if one.default is one.empty]
    takes_all = any(one.kind == one.VAR_KEYWORD for one in parameters)
    open_ = frozenset(one.name for one in named if one.default is None or one.default is one.empty)
    return frozenset(one.name for one in named), required, open_, takes_all


FUNCTIONS: Mapping[str, Callable[..., object]] = {
    "correctness": correctness_score,
    "format": format_score,
    "length": length_score,
    "pattern": pattern_score,
}
"""By kind, the functions that look at one completion."""
