"""verl's rollout_data_dir and validation_data_dir, with the metrics of its logger `file`.

Both folders have a file {step}.jsonl for each step, counted from 1, with a line for each output. Up to verl 0.9's V1 trainer the lines
of a group stand in any order and without a name for it, and are put together by their prompt; since then each has a uid, `<prompt>_<rollout>_<output>`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from backend.contract import yaml_text
from backend.contract.base import Json
from backend.contract.stored import get
from groupscope.files.format import (
    MOST_REWARDS,
    About,
    Format,
    MetricLines,
    Step,
    Unreadable,
    all_lines,
    first_object,
    known_rewards,
    number,
    numbered,
    opened,
)
from groupscope.recording import Completion, Group

ROW = {"input", "output", "score"}  # what each line has
KNOWN = {*ROW, "gts", "step", "uid", "reward", "request_id"}
LOOKED_AT = 50  # files, until one is recognised
HYDRA = ".hydra/config.yaml"


def _recognises(path: Path) -> bool:
    """A folder with verl's rollouts, or with the folders of its rollouts, validations and metrics: by the first line of a file in it.

    Not if there are several of a kind, or others below: then these are several trainings.
    """
    places = _Places(path)
    return bool(places.found) and places.doubled is None and not any(_Places(one).found for one in places.others)


class _Places:
    """Which files and folders at a path are verl's."""

    def __init__(self, path: Path) -> None:
        folders = [path, *_inside(path, folders=True)] if path.is_dir() else []
        of_steps = [folder for folder in folders if _first_row(folder)]
        # verl writes both alike; a validation's rows have their reward once more, under its name
        self.validations = [
            folder for folder in of_steps if "val" in folder.name.lower() or "reward" in _first_row(folder)
        ]
        self.rollouts = [folder for folder in of_steps if folder not in self.validations]
        files = [path] if path.is_file() else _inside(path, folders=False)
        self.others = [folder for folder in folders if folder != path and folder not in of_steps]
        self.metrics = [file for file in files if file.suffix == ".jsonl" and _is_metrics(file)]
        kinds = {"rollouts": self.rollouts, "validations": self.validations, "metrics": self.metrics}
        self.found = [one for found in kinds.values() for one in found]
        self.doubled = next(
            (f"{what} ({found[0].name}, {found[1].name})" for what, found in kinds.items() if len(found) > 1), None
        )


def _inside(folder: Path, *, folders: bool) -> list[Path]:
    try:
        return sorted(islice((one for one in folder.iterdir() if one.is_dir() == folders), 1000))
    except OSError:
        return []


def _step_files(folder: Path) -> dict[int, Path]:
    return numbered(folder, r"(\d+)\.jsonl")


def _first_row(folder: Path) -> dict[str, Any]:
    rows = map(first_object, islice(_step_files(folder).values(), LOOKED_AT))
    return next((row for row in rows if row.keys() >= ROW), {})


def _is_metrics(file: Path) -> bool:
    line = first_object(file)
    return line.keys() == {"step", "data"} and isinstance(line["data"], dict)


class _VerlRun:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._metrics: MetricLines | None = None
        places = self._find()
        row = next((_first_row(folder) for folder in (*places.rollouts, *places.validations)), {})
        self._extras = [name for name, value in row.items() if name not in KNOWN and isinstance(value, int | float)]
        self._extras = self._extras[: MOST_REWARDS - 1]
        config = _config(path)
        weights = {"score": 1.0, **dict.fromkeys(self._extras, 0.0)} if row else {}
        known = _in_our_terms(config) | known_rewards(weights)
        self.about = About("verl", f"verl, {path.resolve().name}", config=config, known=known)

    def _find(self) -> _Places:
        places = _Places(self._path)
        if places.doubled is not None:
            raise Unreadable(f"{self._path} has the {places.doubled} of several trainings: name the folder of one")
        self._rollouts = places.rollouts[0] if places.rollouts else None
        self._validations = places.validations[0] if places.validations else None
        if places.metrics and self._metrics is None:
            self._metrics = MetricLines(places.metrics[0], _metrics_of)
        return places

    def steps(self, start: int, *, final: bool) -> Iterator[Step]:
        """Step k has the rollouts of file k + 1, and the validation after k updates."""
        # what a training writes first is not all of it
        if not (self._rollouts and self._validations and self._metrics):
            self._find()
        rollouts = _step_files(self._rollouts) if self._rollouts else {}
        validations = _step_files(self._validations) if self._validations else {}
        logged: set[int] = set()
        if self._metrics is not None:
            self._metrics.catch_up(start, final=final)
            logged = set(self._metrics.steps())
        trained = {one - 1 for one in (*rollouts, *logged) if one}
        evaluated = {*validations, *(one for one in logged if self._split(one)[1])}
        for step in sorted(one for one in trained | evaluated if one >= start):
            whole = final or step < max(trained | evaluated)
            yield self._step(step, rollouts.get(step + 1), validations.get(step), whole)

    def _step(self, step: int, rollout: Path | None, validation: Path | None, final: bool) -> Step:
        groups: list[Group] = []
        wrong: list[str] = []
        for file, evaluated in ((validation, True), (rollout, False)):  # in the order in which they are written
            if file is not None:
                found, bad = _groups(file, self._extras, evaluated=evaluated, final=final)
                groups += found
                wrong += bad
        trained = self._split(step + 1)[0]
        if self._metrics is not None:
            wrong += self._metrics.unreadable(step + 1)
        # A validation alone is what verl writes first, before there is a folder of rollouts or a file of metrics.
        waits = (self._rollouts is not None and rollout is None) or (
            not trained and (self._metrics is not None or rollout is None)
        )
        return Step(step, groups, trained | self._split(step)[1], wrong, open=waits)

    def _split(self, logged: int) -> tuple[dict[str, float | None], dict[str, float | None]]:
        """The metrics that verl logged after this number of updates, of the training and of the validation."""
        values = self._metrics.of(logged) if self._metrics is not None else {}
        evaluated = {f"eval/{name}": value for name, value in values.items() if name.startswith(("val-", "val/"))}
        return {name: value for name, value in values.items() if f"eval/{name}" not in evaluated}, evaluated


def _metrics_of(line: Any) -> tuple[int, Mapping[str, Any]]:
    return int(line["step"]), line["data"]


def _groups(file: Path, extras: Sequence[str], *, evaluated: bool, final: bool) -> tuple[list[Group], list[str]]:
    lines, wrong = all_lines(file, final=final)
    rows: dict[str, list[dict[str, Any]]] = {}
    for at, row in lines:
        if not isinstance(row, dict) or not isinstance(row.get("input"), str) or not isinstance(row.get("output"), str):
            wrong.append(f"{file.name}, line {at}: no row of verl's, which has an input and an output")
            continue
        uid = row.get("uid")
        rows.setdefault(uid.rsplit("_", 2)[0] if isinstance(uid, str) else row["input"], []).append(row)
    return [_group(of_group, extras, evaluated) for of_group in rows.values()], wrong


def _group(rows: Sequence[Mapping[str, Any]], extras: Sequence[str], evaluated: bool) -> Group:
    truth = rows[0].get("gts")
    return Group(
        prompt=rows[0]["input"],
        answer=truth if isinstance(truth, str | None) else json.dumps(truth, ensure_ascii=False),
        completions=[
            Completion(
                row["output"],
                reward=number(row.get("score")),
                rewards={"score": number(row.get("score")), **{name: number(row.get(name)) for name in extras}},
            )
            for row in rows
        ],
        evaluated=evaluated,
    )


def _config(path: Path) -> dict[str, Json]:
    """The configuration that Hydra leaves, if it lies there."""
    try:
        with opened(path / HYDRA) as file:
            found = yaml_text.read(file.read().decode())
    except (OSError, ValueError, yaml_text.Unreadable):
        return {}
    return found if isinstance(found, dict) else {}


def _in_our_terms(config: dict[str, Json]) -> dict[str, Json]:
    rollout = get(config, "actor_rollout_ref.rollout")
    size, prompts = get(rollout, "n"), get(config, "data.train_batch_size")
    most = get(config, "data.max_response_length")
    return {
        "model": {"source": str(get(config, "actor_rollout_ref.model.path") or "")[:300]},
        "sampling": {
            "group_size": size if isinstance(size, int) else None,
            "prompts_per_step": prompts if isinstance(prompts, int) else None,
            "max_new_tokens": most if isinstance(most, int) else None,
            "temperature": number(get(rollout, "temperature")),
            "top_p": number(get(rollout, "top_p")),
        },
    }


FORMAT = Format(
    "verl", "verl's rollout_data_dir, validation_data_dir and file logger", _recognises, lambda path, _: _VerlRun(path)
)
