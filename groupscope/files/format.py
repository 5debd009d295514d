"""What a format says of the files it knows: whose they are, and their steps, one after the other."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from backend.contract.base import Json
from groupscope.recording import Group


class Unreadable(Exception):
    """Files that cannot be imported at all: the message is one sentence that says which, why, and what to do."""


@dataclass(frozen=True)
class Options:
    """What the person said, where files leave it open."""

    group_size: int | None = None
    """Completions of a prompt, for files that do not say where a group ends."""


@dataclass(frozen=True)
class About:
    """A run on the disk. `config` is the trainer's own configuration, if it lies there; `known` what of it this program has words for,
    as in `groupscope.start_run`.
    """

    trainer: str
    name: str
    version: str = ""
    config: Mapping[str, Json] = field(default_factory=dict)
    known: Mapping[str, Json] = field(default_factory=dict)


@dataclass
class Step:
    """What the files have of a step, counted from 0: a trainer's first update is step 0, also where its files call it 1.

    `metrics` have the trainer's names. One that begins with `eval/` is of an evaluation after `step` updates, and a group of an
    evaluation (`Group.evaluated`) is of the step before which it was sampled.
    """

    step: int
    groups: Sequence[Group] = ()
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    unreadable: Sequence[str] = ()
    """Of each line that cannot be read one sentence: the file, the line's number, and why."""
    seconds: float | None = None
    """Trained so far, if the files say so."""
    open: bool = False
    """More of it may still be written, though nothing has come for a while."""


class Run(Protocol):
    """One run on the disk. It may keep what it needs in order not to read a file twice."""

    about: About

    def steps(self, start: int, *, final: bool) -> Iterator[Step]:
        """The steps from `start` on that are there now, in order; called again, with the first that is not recorded yet, whenever files grew.

        A step that is too large for the memory comes in pieces: one Step after the other with the same number, each with further groups.
        The order of a step's groups is the same at every call, and new ones come last. A torn last line is left for a later call, unless
        this one is `final`: then it is unreadable (`Lines` does both). Raises Unreadable.
        """
        ...


class Format(Protocol):
    """A kind of files. `recognises` is cheap, and true for no other format's files."""

    name: str
    """One word, for `groupscope import --format`."""
    made_by: str
    """Whose files these are, and which: "verl's rollout_data_dir"."""

    def recognises(self, path: Path) -> bool:
        """Whether this file, or this folder itself (not one below it), is a run of this format. Never raises."""
        ...

    def open(self, path: Path, options: Options) -> Run:
        """The run. Raises Unreadable, for a version that is not known, say."""
        ...


class Lines:
    """The lines of a JSON lines file that grows: each once, as soon as it is whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = 0  # the byte after the last whole line
        self._number = 0

    def new(self, *, final: bool = False) -> Iterator[tuple[int, Any]]:
        """The number of each line since the last call, from 1 on, and its object, or a ValueError that says what is wrong with it.

        A last line that is torn comes at a later call; at a `final` one as what it is. A file that is not there has no lines.
        """
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return
        with file:
            file.seek(self._at)
            for line in file:
                found = self._parsed(line)
                if isinstance(found, ValueError) and not line.endswith(b"\n") and not final:
                    return
                self._at += len(line)
                self._number += 1
                if line.strip():
                    yield self._number, found

    def _parsed(self, line: bytes) -> Any:
        try:
            return json.loads(line)
        except (ValueError, RecursionError) as error:
            return ValueError(f"{self.path.name}, line {self._number + 1}: {_reason(error)}")


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "not text in UTF-8"
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg} at column {error.colno}"
    return "not JSON that can be read"


def first_object(path: Path, most_bytes: int = 2**22) -> dict[str, Any]:
    """The object in the first line of a JSON lines file, for `recognises`; empty if there is none, or the line is longer than that."""
    try:
        with path.open("rb") as file:
            found = json.loads(file.readline(most_bytes))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
