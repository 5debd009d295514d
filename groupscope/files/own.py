"""Groupscope's own format: JSON lines, one for each group. docs/format.md describes it for those who write it."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from groupscope.conversation import Turn, turns_of
from groupscope.files.format import (
    MALFORMED,
    About,
    Format,
    Lines,
    Step,
    Unreadable,
    first_object,
    number,
    numbers,
    required_step,
)
from groupscope.recording import Completion, Group
from groupscope.tokens import MEASURED, Tokens

VERSION = 1
PIECE = 512  # completions of a step that are handed on together
TURN = {one.name for one in fields(Turn)}


def _recognises(path: Path) -> bool:
    """A file of JSON lines that begins with {"groupscope": 1}: by its first line."""
    return path.is_file() and "groupscope" in first_object(path)


class _OwnRun:
    def __init__(self, path: Path) -> None:
        """Raises Unreadable for a version that is not known."""
        header = first_object(path)
        if header.get("groupscope") != VERSION:
            raise Unreadable(
                f"{path} is of version {header.get('groupscope')} of the format, and this program reads version {VERSION}: "
                "install a later release"
            )
        config, known = header.get("config") or {}, header.get("known") or {}
        self.about = About(
            trainer=str(header.get("trainer") or "a script"),
            name=str(header.get("name") or path.stem),
            version=str(header.get("version") or ""),
            config=config,
            known=known,
        )
        self._lines = Lines(path)
        self._begins = (0, (0, 0))  # the newest step, and the place of its first line

    def steps(self, start: int, *, final: bool) -> Iterator[Step]:
        """Each step in pieces. Raises Unreadable for a file that is shorter than what was read of it."""
        if self._lines.were_cut:
            raise Unreadable(
                f"{self._lines.path} is shorter than it was: import what it has now as its next attempt, with --from-step 0"
            )
        newest, self._lines.place = self._begins if start >= self._begins[0] else (0, (0, 0))
        piece, size, before = Step(newest), 0, self._lines.place
        for at, line in self._lines.new(final=final):
            try:
                step, groups, metrics = _read(line, newest)
            except MALFORMED as error:
                said = str(error) if error is line else f"{self._lines.path.name}, line {at}: {error}"
                piece = Step(piece.step, piece.groups, piece.metrics, [*piece.unreadable, said])
                before = self._lines.place
                continue
            if step > newest or size >= PIECE:
                if newest >= start:
                    yield piece
                if step > newest:
                    self._begins = (step, before)
                newest, piece, size = step, Step(step), 0
            piece = Step(step, [*piece.groups, *groups], {**piece.metrics, **metrics}, piece.unreadable)
            size += sum(len(group.completions) for group in groups)
            before = self._lines.place
        if newest >= start and (piece.groups or piece.metrics or piece.unreadable):
            yield piece


def _read(line: Any, newest: int) -> tuple[int, list[Group], dict[str, float | None]]:
    """The step of a line, and its groups and metrics. Raises one of MALFORMED."""
    if isinstance(line, ValueError):
        raise line
    if not isinstance(line, dict):
        raise TypeError("an object with a step is expected")
    step = required_step(line.get("step", 0))
    if step < newest:
        raise ValueError(f"step {step} comes after step {newest}; write each step whole before the next one")
    groups = [_group(line)] if "completions" in line else []
    return step, groups, numbers(line.get("metrics") or {})


def _group(line: Mapping[str, Any]) -> Group:
    completions = line["completions"]
    if not isinstance(completions, list) or not completions:
        raise ValueError("completions: a list with at least one is expected")
    return Group(
        prompt=_text(line, "prompt"),
        completions=[_completion(one) for one in completions],
        prompt_id=line.get("prompt_id"),
        prompt_text=line.get("prompt_text"),
        answer=None if line.get("answer") is None else str(line["answer"]),
        reward_mean=number(line.get("reward_mean")),
        reward_std=number(line.get("reward_std")),
        evaluated=bool(line.get("evaluated")),
    )


def _completion(one: Mapping[str, Any]) -> Completion:
    turns = [
        Turn(
            **{name: turn[name] for name in turn.keys() & TURN}
            | {"text": "" if turn.get("text") is None else _text(turn, "text")}
        )
        for turn in one.get("turns") or ()
    ]
    return Completion(
        text="" if turns or one.get("messages") else _text(one, "text"),
        turns=turns or turns_of(one.get("messages") or ()),
        reward=number(one.get("reward")),
        advantage=number(one.get("advantage")),
        rewards={str(name): number(value) for name, value in (one.get("rewards") or {}).items()},
        tokens=_tokens(one.get("tokens")),
        token_count=one.get("token_count"),
        finish_reason="length" if one.get("finish_reason") == "length" else "stop",
    )


def _tokens(found: Mapping[str, Any] | None) -> Tokens | None:
    if not found:
        return None
    texts = found.get("texts")
    values = {name: found[name] for name in MEASURED if found.get(name) is not None}
    if "ids" not in found:
        raise ValueError("tokens: ids are expected")
    return Tokens(found["ids"], None if texts is None else [str(text).encode() for text in texts], **values).checked()


def _text(found: Mapping[str, Any], name: str) -> str:
    if not isinstance(text := found.get(name), str):
        raise TypeError(f"{name}: a text is expected")
    return text


FORMAT = Format(
    "groupscope",
    'JSON lines that begin with {"groupscope": 1}, see docs/format.md',
    _recognises,
    lambda path, _: _OwnRun(path),
)
