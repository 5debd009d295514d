"""prime-rl's output folder: the episodes of verifiers on which it trained, step by step, and its metrics.

Until August 2026 it wrote `rollouts/step_<n>/{train,eval}/{all,effective}/traces.jsonl` and `metrics.jsonl`, since then both into
`monitors/file`. A run that went on with a newer release has both layouts, and is read as one.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from groupscope.files.delivery import Outdated
from groupscope.files.format import Format, MetricLines, Step, numbered, numbers
from groupscope.files.traces import Chunks, Traces, chunks_of
from groupscope.files.verifiers import MOST_FIRST, TRACES, Episodes, about, has_episodes, is_episode, lines_of

STREAM = Path("monitors", "file", "traces", "stream")


def _recognises(path: Path) -> bool:
    """A run's folder, or one of those in which its stream lies: by an episode of its first files."""
    return _stream(path) is not None or any(map(has_episodes, _first_files(path)))


def _stream(path: Path) -> Path | None:
    """The folder of the stream of a run, whichever of the folders around it this is."""
    places = [path.joinpath(*STREAM.parts[first:]) for first in range(len(STREAM.parts) + 1)] if path.is_dir() else []
    return next((one for one in places if chunks_of(one) and any(map(is_episode, _first_lines(one)))), None)


def _first_lines(stream: Path) -> list[Any]:
    return [line for _, line in islice(Chunks(stream, {}).new(final=True), MOST_FIRST)]


def _step_folders(path: Path) -> dict[int, Path]:
    return numbered(path / "rollouts", r"step_(\d+)")


def _first_files(path: Path) -> Iterator[Path]:
    return (file for folder in _step_folders(path).values() for file in sorted(folder.glob(f"*/*/{TRACES}")))


def _metrics_of(line: Any) -> tuple[int, Mapping[str, Any]] | None:
    """An evaluation is of the weights that it measured; what was logged without a step, by the clock alone, belongs to no weights."""
    values = {name: value for name, value in line.items() if name not in ("step", "time", "producer")}
    if line["step"] is None:
        return None
    step = max(int(line["step"]) - 1, 0)
    if values and all(name.startswith("eval/") for name in values):
        step = next((int(one) for name, one in values.items() if name.endswith("/policy_version")), step)
    return step, values


class _Training:
    """Step k has the episodes that prime-rl calls those of step k + 1, and the evaluation that began before its update."""

    def __init__(self, path: Path) -> None:
        stream = (_stream(path) or path / STREAM).resolve()
        self._path = stream.parents[3] if stream.parts[-4:] == STREAM.parts else path
        self._traces, self._looked = Traces(stream), False
        self._fresh: dict[int, dict[str, Any]] = {}  # metrics that came since the last look
        places = (self._path, self._path.joinpath(*STREAM.parts[:2]))
        self._metrics = [MetricLines(place / "metrics.jsonl", self._note) for place in places]
        lines = iter(_first_lines(stream) or lines_of(_first_files(self._path)))
        self.about = about("prime-rl", self._path.resolve(), lines)

    def _note(self, line: Any) -> tuple[int, Mapping[str, Any]] | None:
        if (found := _metrics_of(line)) is not None:
            self._fresh[found[0]] = self._fresh.get(found[0], {}) | dict(found[1])
        return found

    def steps(self, start: int, *, final: bool) -> Iterator[Step]:
        """A step's training groups are there once prime-rl wrote the batch that it trained on."""
        for metrics in self._metrics:
            metrics.catch_up(max(0, start - 1000), final=final)
        changed = self._traces.catch_up(final=final)
        if self._looked and (late := [one for one in changed if one < start]):
            raise Outdated(min(late))
        for step, values in sorted(self._fresh.items()) if self._looked else ():
            if step < start:
                yield Step(step, metrics=numbers(values))
        self._looked, self._fresh = True, {}
        folders = {max(number - 1, 0): folder for number, folder in _step_folders(self._path).items()}
        logged = {step for metrics in self._metrics for step in metrics.steps()}
        known = [one for one in sorted({*folders, *self._traces.steps, *logged}) if one >= start]
        for step in known or [start]:
            last = step >= max(known, default=0) or (not final and self._traces.waits(step))
            yield from self._step(step, folders.get(step), final=final, last=last)
            if last:
                break

    def _step(self, step: int, folder: Path | None, *, final: bool, last: bool) -> Iterator[Step]:
        metrics = {name: value for of in self._metrics for name, value in of.of(step).items()}
        waits = (any(of.there for of in self._metrics) and not metrics) or not self._traces.is_whole(step)
        wrong = [one for of in self._metrics for one in of.unreadable(step)]
        yield Step(step, metrics=metrics, unreadable=wrong, open=waits)
        for groups in self._traces.groups(step):
            yield Step(step, groups, open=waits)
        if folder is not None and all(evaluated for evaluated, _ in self._traces.steps.get(step, ())):
            for piece in _folder(step, folder, final=final or not last):
                waits |= piece.open
                yield piece
        yield Step(step, unreadable=self._traces.wrong(step, last=last), open=waits)


def _folder(step: int, folder: Path, *, final: bool) -> Iterator[Step]:
    """The episodes of a step of the older layout."""
    for kind in ("train", "eval"):
        chosen, everything = (Path(str(folder), kind, subset, TRACES) for subset in ("effective", "all"))
        waits = everything.is_file() and not chosen.is_file()
        arrived = Episodes(everything, final=final, one_step=True) if final or chosen.is_file() else None
        episodes = Episodes(chosen, final=final, one_step=True) if chosen.is_file() else arrived
        if arrived is None or episodes is None:
            yield Step(step, open=waits)
            continue
        for groups in episodes.groups(0, arrived if episodes is not arrived else None):
            yield Step(step, groups, open=waits)
        read = {chosen: episodes, everything: arrived} if episodes is not arrived else {everything: arrived}
        wrong = [f"{folder.name}/{kind}/{file.parent.name}/{one}" for file, of in read.items() for one in of.wrong]
        yield Step(step, unreadable=wrong, open=waits)


FORMAT = Format("prime-rl", "the output folder of prime-rl", _recognises, lambda path, _: _Training(path))
