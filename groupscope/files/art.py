"""ART's model folder: trajectories/<split>/<step>.parquet, a row for each trajectory, and history.jsonl with its metrics.

Older files are <step>.jsonl, a line for each group. Version 2 of the Parquet files (0.5.23) has all of a trajectory as JSON, too:
its messages are null where they are not all text.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from groupscope.conversation import ASSISTANT, completion_start, text_in, turns_of
from groupscope.files.format import (
    MALFORMED,
    About,
    Format,
    Lines,
    MetricLines,
    Step,
    columns_of,
    first_object,
    known_rewards,
    number,
    numbered,
    numbers,
    opened,
    with_metrics,
)
from groupscope.recording import Completion, Group

COLUMNS = {"group_index", "reward", "metrics", "messages"}
TRAIN = "train"
LINES = ".jsonl"
ASKED = {"chat_completions": "messages", "messages": "messages", "responses": "input", "completions": "prompt"}
"""Where a request of an interface has what it asks."""
LOOKED_AT = 50  # files of a split, until one is recognised
ROWS = 256  # that are read together
CLOCK = "time/wall_clock_sec"
OF_NO_STEP = ("step", "training_step", CLOCK)


def _recognises(path: Path) -> bool:
    """The folder of one model: by the columns, or the first line, of a file of trajectories."""
    files = [one for split in _files(path).values() for one in islice(split.values(), LOOKED_AT)]
    lines = ("trajectories" in first_object(one, 2**26) for one in files if one.suffix == LINES)
    return any(lines) or any(set(columns_of(one)) >= COLUMNS for one in files)


def _files(path: Path) -> dict[str, dict[int, Path]]:
    """By their split and the number in their name; of a step that has both, the Parquet file into which ART turned the other."""
    splits = {
        folder.name: numbered(folder, r"(\d+)\.(?:jsonl|parquet)") for folder in sorted(path.glob("trajectories/*"))
    }
    return {name: files for name, files in splits.items() if files}


class _ArtRun:
    """Step k has the trajectories of update k + 1. Whose file counts from 0, as by `model.log(groups, split="train")`, or from 1, as by the
    pipeline trainer, which logs them after the update.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._metrics = MetricLines(path / "history.jsonl", lambda line: (int(line["step"]), line))
        names: dict[str, None] = {}
        for split in _files(path).values():
            for file in split.values():
                for row in _rows(file, [], ["metrics"]):
                    names |= dict.fromkeys(_measured(row))
        weights = with_metrics({"reward": 1.0}, dict.fromkeys(names, 0.0))
        self.about = About("ART", f"ART, {path.resolve().name}", known=known_rewards(weights))

    def steps(self, start: int, *, final: bool) -> Iterator[Step]:
        """An evaluation is of the number of updates in its file's name."""
        files = _files(self._path)
        trained = files.pop(TRAIN, {})
        later = 0 if 0 in trained or not trained else 1  # by how much its numbers are higher than ours
        self._metrics.catch_up(start, final=final)
        logged = {one: self._metrics.of(one) for one in self._metrics.steps()}
        ours = {one - later for one in trained} | {one for split in files.values() for one in split}
        ours |= {max(one - later, 0) for one in logged}
        for step in sorted(one for one in ours if one >= start):
            number_, whole = step + later, final or step < max(ours)
            of_training = logged.get(number_, {})
            metrics = {name: value for name, value in of_training.items() if not _of_evaluation(name, files)}
            metrics |= {
                f"eval/{name}": value for name, value in logged.get(step, {}).items() if _of_evaluation(name, files)
            }
            seconds = metrics.get(CLOCK)
            metrics = {name: value for name, value in metrics.items() if name not in OF_NO_STEP}
            yield Step(step, metrics=metrics, unreadable=self._metrics.unreadable(number_), seconds=seconds)
            for split, of_split in {TRAIN: {one - later: file for one, file in trained.items()}, **files}.items():
                if step in of_split:
                    yield from _pieces(step, of_split[step], evaluated=split != TRAIN, final=whole)


def _of_evaluation(name: str, splits: Mapping[str, Any]) -> bool:
    return name.split("/", 1)[0] in {"val", "test", *splits}


def _rows(file: Path, wrong: list[str], columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """One for each trajectory, with `group_index`."""
    import pyarrow.parquet as pq
    from pyarrow import ArrowException

    try:
        if file.suffix == LINES:
            yield from _lines(file, wrong)
            return
        with opened(file) as whole, pq.ParquetFile(whole) as found:
            for batch in found.iter_batches(ROWS, columns=columns):
                yield from batch.to_pylist()
    except (ArrowException, OSError, *MALFORMED) as error:
        wrong.append(f"{file.parent.name}/{file.name} cannot be read: {f'{error}'.partition(chr(10))[0][:200]}")


def _lines(file: Path, wrong: list[str]) -> Iterator[dict[str, Any]]:
    for number_, line in Lines(file).new(final=True):
        if isinstance(line, dict) and isinstance(line.get("trajectories"), list):
            yield from ({**one, "group_index": number_} for one in line["trajectories"] if isinstance(one, dict))
        else:
            why = line if isinstance(line, ValueError) else f"{file.name}, line {number_}: no group of ART"
            wrong.append(f"{file.parent.name}/{why}")


def _pieces(step: int, file: Path, *, evaluated: bool, final: bool) -> Iterator[Step]:
    """A group at a time. A file that cannot be read is one that is still being written, unless nothing more comes."""
    wrong: list[str] = []
    for index, rows in groupby(_rows(file, wrong), key=lambda row: row["group_index"]):
        try:
            # a group all of whose trajectories raised an error has a row of its own
            there = [row for row in rows if row.get("reward") is not None or row.get("messages")]
            yield Step(step, [_group(there, evaluated=evaluated)] if there else ())
        except MALFORMED as error:
            said = f"{file.parent.name}/{file.name}, group {index}: no trajectories of ART ({type(error).__name__}: {error})"
            yield Step(step, unreadable=[said])
    yield Step(step, unreadable=wrong if final else (), open=bool(wrong))


def _parsed(text: Any) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}") if isinstance(text, str | None) else text
    except MALFORMED:
        return {}
    return found if isinstance(found, dict) else {}


def _measured(row: Mapping[str, Any]) -> dict[str, float | None]:
    """The metrics of a trajectory."""
    return numbers(_parsed(row.get("metrics")))


def _group(rows: Sequence[Mapping[str, Any]], *, evaluated: bool) -> Group:
    made = [_completion(row) for row in rows]
    answer = _parsed(rows[0].get("metadata")).get("answer")
    return Group(
        prompt=made[0][0],
        answer=None if answer is None else str(answer),
        completions=[completion for _, completion in made],
        evaluated=evaluated,
    )


def _messages(row: Mapping[str, Any]) -> list[Any]:
    """Those of a trajectory: a choice, which is what the model said, is trained on. Raises TypeError if there are none."""
    if row.get("messages") is not None:
        return list(row["messages"])
    whole = row if "messages_and_choices" in row else _parsed(row.get("trajectory_json"))
    found = whole.get("messages_and_choices") or _said(whole.get("exchanges") or {})
    if not isinstance(found, list):
        raise TypeError("its messages are null, and no trajectory_json has them")
    chosen = [(one, one.get("message")) for one in found]
    return [
        {**said, "trainable": True} if isinstance(said, dict) else {"trainable": False, **one} for one, said in chosen
    ]


def _said(exchanges: Mapping[str, Any]) -> list[Any] | None:
    """What was asked last over one of the interfaces that ART records, and the answer: the history stands in the request."""
    for last, where in ((exchanges[name][-1], where) for name, where in ASKED.items() if exchanges.get(name)):
        asked, response = last["request"].get(where) or [], last["response"]
        before = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
        choice = next(iter(response.get("choices") or ()), response)
        said = choice.get("message") or {"role": ASSISTANT, "content": choice.get("text", choice.get("content"))}
        found = [*before, *(response.get("output") or [said])]
        return [{"trainable": one.get("role") == ASSISTANT, **one} for one in found]
    return None


def _completion(row: Mapping[str, Any]) -> tuple[str, Completion]:
    messages = _messages(row)
    first = next((at for at, one in enumerate(messages) if one.get("trainable")), None)
    if first is None:
        first = completion_start(messages)
    reward = number(row.get("reward"))
    return "\n".join(map(text_in, messages[:first])), Completion(
        turns=turns_of(messages)[len(turns_of(messages[:first])) :],
        reward=reward,
        rewards=with_metrics({"reward": reward}, _measured(row)),
    )


FORMAT = Format("art", "ART's .art/<project>/models/<model>", _recognises, lambda path, _: _ArtRun(path))
