"""prime-rl's output folder: the episodes of verifiers on which it trained, step by step, and its metrics."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from groupscope.files.format import Format, MetricLines, Step, numbered
from groupscope.files.verifiers import TRACES, Episodes, about, has_episodes


def _recognises(path: Path) -> bool:
    """A folder with `metrics.jsonl` and `rollouts/step_<n>/{train,eval}/{all,effective}/traces.jsonl`: by its first episode."""
    return any(map(has_episodes, _first_files(path)))


def _step_folders(path: Path) -> dict[int, Path]:
    return numbered(path / "rollouts", r"step_(\d+)")


def _first_files(path: Path) -> list[Path]:
    return [file for folder in list(_step_folders(path).values())[:1] for file in sorted(folder.glob(f"*/*/{TRACES}"))]


class _Training:
    """Step k has the episodes that prime-rl calls those of step k + 1, and the evaluation that began before its update."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._metrics = MetricLines(path / "metrics.jsonl", _metrics_of)
        self.about = about("prime-rl", path.resolve(), _first_files(path))

    def steps(self, start: int, *, final: bool) -> Iterator[Step]:
        """A step's training groups are there once prime-rl wrote the batch that it trained on."""
        self._metrics.catch_up(start, final=final)
        folders = {max(number - 1, 0): folder for number, folder in _step_folders(self._path).items()}
        known = sorted({*folders, *self._metrics.steps()})
        for step in known:
            if step >= start:
                yield from self._step(step, folders.get(step), final=final or step < known[-1])

    def _step(self, step: int, folder: Path | None, *, final: bool) -> Iterator[Step]:
        metrics = self._metrics.of(step)
        waits = self._metrics.there and not metrics
        yield Step(step, metrics=metrics, unreadable=self._metrics.unreadable(step), open=waits)
        for kind in ("train", "eval") if folder is not None else ():
            chosen, everything = (Path(str(folder), kind, subset, TRACES) for subset in ("effective", "all"))
            waits |= everything.is_file() and not chosen.is_file()
            arrived = Episodes(everything, final=final, one_step=True) if final or chosen.is_file() else None
            episodes = Episodes(chosen, final=final, one_step=True) if chosen.is_file() else arrived
            if arrived is None or episodes is None:
                continue
            for groups in episodes.groups(0, arrived if episodes is not arrived else None):
                yield Step(step, groups, open=waits)
            read = {chosen: episodes, everything: arrived} if episodes is not arrived else {everything: arrived}
            wrong = [f"{kind}/{file.parent.name}/{one}" for file, of in read.items() for one in of.wrong]
            yield Step(step, unreadable=wrong, open=waits)
        yield Step(step, open=waits)


def _metrics_of(line: Any) -> tuple[int, Mapping[str, Any]]:
    values = {name: value for name, value in line.items() if name not in ("step", "time")}
    return max(int(line["step"]) - 1, 0), values


FORMAT = Format("prime-rl", "the output folder of prime-rl", _recognises, lambda path, _: _Training(path))
