"""What a format says of the files it knows: whose they are, and their steps, one after the other."""

import errno
import json
import os
import re
import stat
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from backend.contract.base import Json, finite
from groupscope.recording import Group

MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What reading something as what it is not raises; a ValueError says what is wrong."""
MOST_STEPS = 2**40
"""No training has as many, and the reports of each have numbers of 63 bits (`delivery.REPORTS_A_STEP`)."""

MOST_REWARDS = 64
"""Values that a completion can have by their name."""


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
        The order of a step's groups is the same at every call, and new ones come last. A last line without its newline is left for a
        later call, unless this one is `final`: then it is read, or unreadable (`Lines` does both). Before them may come steps below `start` whose metrics are known
        only now, with nothing else. Raises Unreadable, and Outdated for a step below `start` that has grown.
        """
        ...


@dataclass(frozen=True)
class Format:
    """A kind of files."""

    name: str
    """One word, for `groupscope import --format`."""
    made_by: str
    """Whose files these are, and which: "verl's rollout_data_dir"."""
    recognises: Callable[[Path], bool]
    """Whether this file, or this folder itself (not one below it), is a run of this format alone. Cheap, and never raises."""
    open: Callable[[Path, Options], Run]
    """The run. Raises Unreadable, for a version that is not known, say."""


def numbered(folder: Path, pattern: str) -> dict[int, Path]:
    """What lies in a folder under names with a number, which is the pattern's group, by that number and in its order. A folder that cannot be
    read has nothing.
    """
    try:
        named = [(re.fullmatch(pattern, one.name), one) for one in folder.iterdir()]
    except OSError:
        return {}
    return dict(sorted((int(match[1]), one) for match, one in named if match))


def opened(path: Path) -> BinaryIO:
    """The file, to be read. Raises OSError for what is none: a pipe would let its reader wait for ever."""
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115 — who asked closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a file", str(path))
    return file


class Lines:
    """The lines of a JSON lines file that grows: each once, as soon as its newline is there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._failed = False  # which was said
        self.place = (0, 0)
        """The bytes and the lines that were read. Set to an earlier place, the lines behind it come again."""

    @property
    def were_cut(self) -> bool:
        """Whether less is there than was read: the file was cut, or another one stands in its place."""
        try:
            return self.path.stat().st_size < self.place[0]
        except OSError:
            return False

    def new(self, *, final: bool = False) -> Iterator[tuple[int, Any]]:
        """The number of each line since the last call, from 1 on, and its object, or a ValueError that says what is wrong with it.

        A last line without its newline comes at a later call; at a `final` one as what it is. A file that is not there has no lines.
        """
        try:
            with opened(self.path) as file:
                file.seek(self.place[0])
                for line in file:
                    if not line.endswith(b"\n") and not final:
                        return
                    number = self.place[1] + 1
                    self.place = self.place[0] + len(line), number
                    if line.strip():
                        yield number, parsed(line, f"{self.path.name}, line {number}")
        except FileNotFoundError:
            return
        except OSError as error:
            if not self._failed:
                self._failed = True
                yield self.place[1] + 1, ValueError(f"{self.path.name} cannot be read: {error.strerror or error}")


def parsed(line: bytes, where: str) -> Any:
    """The object of a line, or a ValueError that says what is wrong with it."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        return ValueError(f"{where}: {_reason(error)}")


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "not text in UTF-8"
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg} at character {error.pos + 1}"
    return "not JSON that can be read"


def first_object(path: Path, most_bytes: int = 2**22) -> dict[str, Any]:
    """The first object in the first lines of a JSON lines file; empty if there is none, or its line is longer than that."""
    try:
        with opened(path) as file:
            for _ in range(10):  # of which some may be damaged
                line = file.readline(most_bytes)
                if isinstance(found := parsed(line, ""), dict):
                    return found
                if not line.endswith(b"\n"):
                    break
    except OSError:
        pass
    return {}


def json_object(path: Path) -> dict[str, Json]:
    """The object in a JSON file; empty if there is none."""
    try:
        with opened(path) as file:
            found = json.loads(file.read())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def columns_of(path: Path) -> list[str]:
    """The columns of a Parquet file; of what cannot be read as one, none."""
    import pyarrow.parquet as pq
    from pyarrow import ArrowException

    try:
        with opened(path) as file:
            return list(pq.read_schema(file).names)
    except (ArrowException, OSError, *MALFORMED):
        return []


def all_lines(path: Path, *, final: bool) -> tuple[list[tuple[int, Any]], list[str]]:
    """The objects of a file's lines, by their numbers, and what is wrong with the others."""
    found = list(Lines(path).new(final=final))
    there = [(number, one) for number, one in found if not isinstance(one, ValueError)]
    empty = [f"{path.name} is empty"] if final and not found and path.is_file() else []
    return there, [*empty, *(str(one) for _, one in found if isinstance(one, ValueError))]


class MetricLines:
    """A JSON lines file with the metrics of one step in each line."""

    def __init__(self, path: Path, read: Callable[[Any], tuple[int, Mapping[str, Any]] | None]) -> None:
        """`read` finds the step and the metrics in a line; None if they are of no step. It may raise one of MALFORMED."""
        self._lines, self._read = Lines(path), read
        self._of: dict[int, dict[str, float | None]] = {}
        self._unreadable: dict[int, list[str]] = defaultdict(list)
        self.last = -1  # the newest step in the file
        self.there = path.is_file()

    def catch_up(self, start: int, *, final: bool) -> None:
        """Read what is new, and forget what is of earlier steps than `start`."""
        self.there = self.there or self._lines.path.is_file()
        if self._lines.were_cut:
            self._lines.place = (0, 0)
        for number, line in self._lines.new(final=final):
            try:
                if isinstance(line, ValueError):
                    raise line
                if (found := self._read(line)) is None:
                    continue
                step, values = found
                self._of[required_step(step)] = self._of.get(step, {}) | numbers(values)
                if self.last < 0 and 0 in self._unreadable:
                    self._unreadable[step] = self._unreadable.pop(0)
                self.last = max(self.last, step)
            except MALFORMED as error:
                said = str(line) if error is line else f"{self._lines.path.name}, line {number}: no step with metrics"
                self._unreadable[max(self.last, 0)].append(said)
        self._of = {step: values for step, values in self._of.items() if step >= start}

    def steps(self) -> list[int]:
        """Those that it knows of."""
        return sorted(self._of)

    def of(self, step: int) -> dict[str, float | None]:
        """The metrics of a step; empty if there are none."""
        return self._of.get(step, {})

    def unreadable(self, step: int) -> list[str]:
        """What is wrong with lines behind that of the step; at the first one in the file also with those before it."""
        return self._unreadable.get(step, [])


def numbers(values: Mapping[str, Any]) -> dict[str, float | None]:
    """Those of the values that are numbers, or null; of nested ones by the names on their way, joined by slashes."""
    found: dict[str, float | None] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= {f"{name}/{inner}": each for inner, each in numbers(value).items()}
        elif value is None or isinstance(value, int | float):  # a truth is 0 or 1
            found[str(name)] = number(value)
    return found


def number(value: Any) -> float | None:
    """The value, if it is a finite number."""
    return finite(value) if isinstance(value, int | float) else None


def known_rewards(weights: Mapping[str, float | None]) -> dict[str, Json]:
    """Rewards by their name with their weight, None if it is not known, as `About.known` has them."""
    functions: list[Json] = [{"name": name, "weight": weight} for name, weight in weights.items()]
    return {"rewards": {"functions": functions}}


def with_metrics(rewards: Mapping[str, float | None], metrics: Mapping[str, float | None]) -> dict[str, float | None]:
    """What reward functions gave, and what was measured beside them: as much as a completion can have."""
    return dict(
        islice({**rewards, **{name: metrics[name] for name in metrics if name not in rewards}}.items(), MOST_REWARDS)
    )


def required_step(value: Any) -> int:
    """The value as a step. Raises ValueError."""
    if not isinstance(value, int) or not 0 <= value < MOST_STEPS:
        raise ValueError(f"step is {str(value)[:40]}, and a number from 0 on is expected")
    return value
