"""TRL's completions/completions_XXXXX.parquet, which GRPOTrainer writes with `log_completions=True`, and the log of its trainer_state.json.

A file is of the update whose number it has; one that was written again after an evaluation has that evaluation's rows instead. Which rows make a group is
in neither: they stand one after the other, and a group has one prompt. What a checkpoint has of the arguments is pickled, and is not read.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from backend.contract.base import Json
from backend.contract.protocol import EVALUATION
from groupscope.conversation import text_in, turns_of
from groupscope.files.format import (
    MALFORMED,
    About,
    Format,
    Options,
    Step,
    Unreadable,
    columns_of,
    known_rewards,
    number,
    numbered,
    numbers,
    opened,
)
from groupscope.recording import Completion, Group

BEFORE, AFTER = ("step", "prompt", "completion"), "advantage"  # the columns around those of the rewards
OF_THE_WHOLE = "train_runtime"  # is in what is logged once, at the end
LOOKED_AT = 50  # files, for whose they are and the size of a group
CLOSE = 1e-3  # the log's rewards are means of float32


def _recognises(path: Path) -> bool:
    """An output folder of TRL, or its folder of completions: by the columns of a file in it."""
    files = _files(path)
    return any(_columns(file) for file in islice(files.values(), LOOKED_AT))


def _files(path: Path) -> dict[int, Path]:
    """By the number of the update in their name."""
    return numbered(path / "completions" if (path / "completions").is_dir() else path, r"completions_(\d+)\.parquet")


def _columns(file: Path) -> list[str]:
    """Of a file that is TRL's, else none."""
    names = columns_of(file)
    return names if names[:3] == list(BEFORE) and AFTER in names else []


def _rows(file: Path) -> list[dict[str, Any]]:
    """Raises ValueError for a file that is not whole, or another's."""
    import pyarrow.parquet as pq
    from pyarrow import ArrowException

    if not (columns := _columns(file)):
        raise ValueError(f"{file.name}: not a whole Parquet file with TRL's columns")
    try:
        rows: list[dict[str, Any]] = pq.read_table(file, columns=columns[: columns.index(AFTER) + 1]).to_pylist()
    except (ArrowException, OSError, *MALFORMED) as error:
        raise ValueError(f"{file.name}: {error}") from None
    return rows


class _State:
    """The newest trainer_state.json, read again when there is a newer one."""

    def __init__(self, path: Path) -> None:
        self._folder = path.parent if path.name == "completions" else path
        self._read: dict[Path, float] = {}
        self.logged: dict[int, dict[str, float | None]] = {}  # by updates done, of the training
        self.evaluated: dict[int, dict[str, float | None]] = {}
        self.max_steps: int | None = None
        self.damaged: dict[Path, str] = {}  # sentences

    def catch_up(self) -> None:
        """Read what is new."""
        for file in (*self._folder.glob("checkpoint-*/trainer_state.json"), self._folder / "trainer_state.json"):
            try:
                changed = file.stat().st_mtime
                if self._read.get(file) == changed:
                    continue
                with opened(file) as whole:
                    state = json.loads(whole.read())
                self._take(state["log_history"], state.get("max_steps"))
                self._read[file] = changed
                self.damaged.pop(file, None)
            except OSError:
                continue
            except MALFORMED:  # or just being written
                self.damaged[file] = f"{file.parent.name}/{file.name}: no state of TRL's"

    def _take(self, history: Sequence[Mapping[str, Any]], most: Any) -> None:
        self.max_steps = most if isinstance(most, int) and most > 0 else self.max_steps
        for line in history:
            values = numbers({name: value for name, value in line.items() if name != "step"})
            if OF_THE_WHOLE in values:
                continue
            of_evaluation = {EVALUATION + name[5:]: value for name, value in values.items() if name.startswith("eval_")}
            place = self.evaluated if of_evaluation else self.logged
            place.setdefault(int(line["step"]), {}).update(of_evaluation or values)

    @property
    def rewards(self) -> list[str]:
        """The names of the reward functions, as far as the log says them."""
        names = [re.fullmatch(r"rewards/(.+)/mean", name) for values in self.logged.values() for name in values]
        return list(dict.fromkeys(match[1] for match in names if match))

    def sums_up(self, names: Sequence[str]) -> bool:
        """Whether the logged reward is everywhere the plain sum of these functions' means."""
        pairs = [
            (values.get("reward"), [values.get(f"rewards/{name}/mean") for name in names])
            for values in self.logged.values()
        ]
        return bool(pairs) and all(
            total is not None
            and None not in each
            and math.isclose(total, math.fsum(one or 0.0 for one in each), abs_tol=CLOSE)
            for total, each in pairs
        )


class _TrlRun:
    def __init__(self, path: Path, options: Options) -> None:
        self._path, self._given_size = path, options.group_size
        self._state = _State(path)
        self._state.catch_up()
        self._size: int | None = None  # of a group of the training
        self._reported: set[int] = set()  # steps whose metrics were handed on
        self._learn()
        known: dict[str, Json] = {
            "sampling": {"group_size": self._size},
            **known_rewards({name: self._weights.get(name) for name in self._rewards}),
            "budget": {"steps": self._state.max_steps},
        }
        self.about = About(
            "TRL", f"TRL, {(path.parent if path.name == 'completions' else path).resolve().name}", known=known
        )

    def _learn(self) -> None:
        """How large groups are, and how rewards are weighed, as far as the files and the log tell by now. Raises Unreadable."""
        trained, evaluated = self._split()
        size, self._size_evaluated = _group_size(trained.values()), _group_size(evaluated.values())
        self._groups_by_prompt = size != 1
        self._size = self._given_size or (size if self._groups_by_prompt else None) or self._size
        if self._size is None and (trained or self._size_evaluated is None):
            raise Unreadable(
                f"{self._path}: equal prompts do not stand together, or there is one prompt only, so nothing says which rows make a group; "
                "say how many do with --group-size, which is TRL's num_generations"
            )
        files = [*trained.values(), *evaluated.values()]
        first = next((columns for file in files if (columns := _columns(file))), [])
        between = first[len(BEFORE) : first.index(AFTER)] if first else []
        logged = self._state.rewards
        self._rewards = [name for name in between if name in logged or (not logged and _is_number(files, name))]
        weighed = len(self._rewards) == 1 or self._state.sums_up(self._rewards)
        self._weights = dict.fromkeys(self._rewards, 1.0) if weighed else {}

    def _split(self) -> tuple[dict[int, Path], dict[int, Path]]:
        """The files of the training, and those that an evaluation wrote again, by the updates that were done."""
        files = _files(self._path)
        evaluated = {done: file for done, file in files.items() if done in self._state.evaluated or done == 0}
        return {done: file for done, file in files.items() if done not in evaluated}, evaluated

    def steps(self, start: int, *, final: bool) -> Iterator[Step]:
        """Step k has file k + 1 unless an evaluation wrote it again, and the evaluation after k updates."""
        before = bool(self._state.logged)
        self._state.catch_up()
        if self._size is None or bool(self._state.logged) != before:
            self._learn()
        trained, evaluated = self._split()
        measured = {done - 1 for done in self._state.logged if done} | self._state.evaluated.keys()
        for step in sorted(one for one in measured - self._reported if one < start):
            yield Step(step, metrics=self._metrics(step))
        self._reported |= measured
        after = {done - 1 for done in (*trained, *self._state.logged) if done}
        there = {*after, *evaluated, *self._state.evaluated}
        for step in sorted(one for one in there if one >= start):
            groups, wrong, torn = self._groups(trained.get(step + 1), evaluated=False)
            probes, wrong_too, torn_too = self._groups(evaluated.get(step), evaluated=True)
            torn = not final and step == max(there) and (torn or torn_too)  # the file is being written
            yield Step(
                step,
                [*groups, *probes],
                self._metrics(step),
                []
                if torn
                else [*wrong, *wrong_too, *(self._state.damaged.values() if final and step == max(there) else ())],
                open=torn or not (step + 1 in trained or step + 1 in self._state.logged),
            )

    def _metrics(self, step: int) -> dict[str, float | None]:
        return self._state.logged.get(step + 1, {}) | self._state.evaluated.get(step, {})

    def _groups(self, file: Path | None, *, evaluated: bool) -> tuple[list[Group], list[str], bool]:
        """Those of a file, what is wrong with it, and whether it is torn."""
        if file is None:
            return [], [], False
        try:
            rows = _rows(file)
        except ValueError as error:
            return [], [str(error)], True
        size = ((self._size_evaluated if evaluated else None) or self._size) or len(rows)
        groups, wrong = [], []
        for run in _of_one_prompt(rows) if self._groups_by_prompt else [rows]:
            for at in range(0, len(run), size):
                try:
                    groups.append(self._group(run[at : at + size], evaluated))
                except MALFORMED as error:
                    wrong.append(
                        f"{file.name}: {len(run[at : at + size])} rows that make no group of TRL's ({type(error).__name__}: {error})"
                    )
        return groups, wrong, False

    def _group(self, rows: Sequence[Mapping[str, Any]], evaluated: bool) -> Group:
        return Group(
            prompt=_text(rows[0]["prompt"]), completions=[self._completion(row) for row in rows], evaluated=evaluated
        )

    def _completion(self, row: Mapping[str, Any]) -> Completion:
        said = row["completion"]
        rewards = {name: number(row.get(name)) for name in self._rewards}
        known = [self._weights[name] * value for name, value in rewards.items() if value is not None and self._weights]
        return Completion(
            text=said if isinstance(said, str) else "",
            turns=() if isinstance(said, str) else turns_of(_without_nulls(said)),
            reward=math.fsum(known) if known else None,
            advantage=number(row[AFTER]),
            rewards=rewards,
        )


def _without_nulls(value: Any) -> Any:
    """Without the fields that Parquet adds to a message because others have them."""
    if isinstance(value, list):
        return [_without_nulls(one) for one in value]
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    return value


def _text(said: Any) -> str:
    return said if isinstance(said, str) else "\n".join(text_in(message) for message in said or ())


def _is_number(files: Sequence[Path], name: str) -> bool:
    import pyarrow.parquet as pq
    import pyarrow.types as kinds

    kind = next(pq.read_schema(file).field(name).type for file in files if name in _columns(file))
    return bool(kinds.is_floating(kind) or kinds.is_integer(kind))


def _of_one_prompt(rows: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The stretches of rows whose prompts are equal."""
    return [list(run) for _, run in groupby(rows, key=_prompt)]


def _prompt(row: Mapping[str, Any]) -> str:
    return json.dumps(row["prompt"], sort_keys=True, default=str)


def _group_size(files: Iterable[Path]) -> int | None:
    """What most of these files have, by each of them the largest number that divides every stretch of equal prompts. None if there is one prompt
    only: then nobody knows how many groups stand together.
    """
    sizes: Counter[int] = Counter()
    prompts: set[str] = set()
    for file in islice(files, LOOKED_AT):
        try:
            runs = _of_one_prompt(_rows(file))
        except ValueError:
            continue
        if runs:
            sizes[reduce(math.gcd, map(len, runs))] += 1
            prompts |= {_prompt(run[0]) for run in runs}
    return max(sizes, key=lambda size: (sizes[size], size)) if len(prompts) > 1 else None


FORMAT = Format("trl", "TRL's completions/*.parquet, of log_completions=True", _recognises, _TrlRun)
