"""`groupscope import --follow` look by look: what each look sends, and what it does not send again."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree
from typing import Any

import pyarrow
import pytest
from importing import FOREIGN, groups_of, imported, imports
from serving import Backend

from groupscope.files.catalog import find
from groupscope.files.delivery import Delivery, Labels
from groupscope.files.format import About, Options, Step
from groupscope.files.own import FORMAT
from groupscope.files.run_import import RunImport
from groupscope.recording import Completion, Group
from groupscope.tokens import Tokens


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No look waits for time to pass."""
    monkeypatch.setattr("groupscope.files.run_import.SETTLED_SECONDS", 0.0)
    monkeypatch.setattr("groupscope.files.run_import.PAUSE", 0)


@contextmanager
def begun(backend: Backend, path: Path) -> Iterator[RunImport]:
    """The import of a path, whose looks the test takes."""
    [(found, format_)] = find(path)
    files = format_.open(found, Options())
    delivery = Delivery(backend.client, found, files.about, Labels(), lambda line: None, 10.0, lambda: False)
    run = RunImport(found, files, delivery)
    try:
        run.begin()
        yield run
    finally:
        delivery.close()


def group(step: int, place: int, tokens: Any = None) -> dict[str, Any]:
    completions = [{"text": str(reward), "reward": reward, "tokens": tokens} for reward in (1.0, 0.0)]
    return {"step": step, "prompt": f"What is {place}?", "completions": completions}


def written(path: Path, lines: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in [{"groupscope": 1}, *lines]))
    return path


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step is too large to be sent at once."""
    monkeypatch.setattr("groupscope.files.run_import.PART_CHARACTERS", 10)
    monkeypatch.setattr("groupscope.files.own.PIECE", 4)


@pytest.mark.usefixtures("in_pieces")
def test_a_step_in_pieces_is_sent_once_however_often_it_is_looked_at(backend: Backend, tmp_path: Path) -> None:
    path = written(tmp_path / "run.jsonl", [group(0, place) for place in range(12)])
    with begun(backend, path) as run:
        for _ in range(3):
            run.advance(final=False)
            found = backend.client.run(run.delivery.tally.run_id)
            assert (found.attempt, found.progress.step) == (1, 1)
        with path.open("a") as file:
            file.write(json.dumps(group(0, 12)) + "\n")
        run.advance(final=False)
        assert backend.client.run(run.delivery.tally.run_id).attempt == 2
        assert sum(sum(one.states.values()) for one in backend.client.steps(run.delivery.tally.run_id)) == 13
        assert run.delivery.tally.summary() == f"run {run.delivery.tally.run_id}: 1 step, 13 groups, 26 completions"


@pytest.mark.usefixtures("in_pieces")
def test_token_values_that_have_no_room_are_missed_in_the_log_also_if_the_step_ends_later(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupscope.files.run_import.SETTLED_SECONDS", 1e9)
    path = written(tmp_path / "run.jsonl", [group(0, place, {"ids": [1, 2]}) for place in range(12)])
    with begun(backend, path) as run:
        run.advance(final=False)
        with path.open("a") as file:
            file.write(json.dumps({"step": 1, "metrics": {"loss": 0.5}}) + "\n")
        run.advance(final=False)
        said = [line.message for line in backend.client.logs(run.delivery.tally.run_id).items]
    assert any("step 0 is too large for one report: token values of 2 groups" in line for line in said), said


BROKEN = Exception("said in two\nlines")


class Broken:
    """A format whose reader has a mistake: in `open`, or in what it reads."""

    name = "broken"
    made_by = "a test"

    def __init__(self, steps: Sequence[Step] | None) -> None:
        self._steps = steps

    def recognises(self, path: Path) -> bool:
        return path.suffix == ".json"

    def open(self, path: Path, options: Options) -> "Broken":
        if self._steps is None:
            raise BROKEN
        self.about = About("a test", path.name)
        return self

    def steps(self, start: int, *, final: bool) -> Iterator[Step]:
        assert self._steps is not None
        yield from self._steps
        raise BROKEN


GROUP = Group("p", [Completion("a", reward=1.0, tokens=Tokens([1])), Completion("b", reward=0.0)])
UNFORESEEN: dict[str, tuple[Sequence[Step] | None, str]] = {
    "in open": (None, "/1.json cannot be imported: Exception: said in two lines"),
    "in a line": ([Step(0, [GROUP])], "is imported no further: Exception: said in two lines"),
}


@pytest.mark.parametrize("where", UNFORESEEN)
def test_a_mistake_in_reading_a_run_is_said_in_a_sentence_and_the_others_are_imported(
    backend: Backend, tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, sentence = UNFORESEEN[where]
    monkeypatch.setattr("groupscope.files.catalog.FORMATS", (Broken(steps), FORMAT))
    (tmp_path / "1.json").touch()
    written(tmp_path / "2.jsonl", [group(0, 0)])
    said: list[str] = []
    run = imports(backend.client, tmp_path, said)
    run.once()
    assert any(sentence in line.splitlines()[-1] for line in said), said
    assert said[-1].endswith(": 1 step, 1 group, 2 completions")
    assert run.failed


def test_a_step_is_kept_whose_token_values_cannot_be_packed_also_of_a_path_that_was_followed(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unpacked(tokens: Any) -> Any:
        raise pyarrow.ArrowInvalid("no such value")

    monkeypatch.setattr("groupscope.files.pending_step.trace_of", unpacked)
    said: list[str] = []
    looks = iter([False, True])  # it is followed, and read to its end when that is over
    imports(backend.client, copytree(FOREIGN / "openenv", tmp_path / "run"), said).follow(lambda: next(looks, True))
    assert said[-1].splitlines() == [
        "run 1: 0 steps, 3 groups, 12 completions; 1 line could not be read:",
        "  token values of step 0: no such value",
    ]


@pytest.mark.parametrize("name", ["openenv", "verifiers/verifiers"])
def test_an_open_step_with_token_values_is_shown_once_it_stands_still(
    backend: Backend, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copytree(FOREIGN / name, tmp_path / "run")
    [file] = path.glob("*s.jsonl")
    *first, last = file.read_text().splitlines(keepends=True)
    file.write_text("".join(first))
    monkeypatch.setattr("groupscope.files.run_import.REREAD_SECONDS", 0.0)

    def shown() -> tuple[int, int, int]:
        run.advance(final=False)
        run_id = run.delivery.tally.run_id
        completions = [one for each in groups_of(backend, run_id, 0) for one in each.completions]
        traces = sum(one.has_trace for one in completions)
        return backend.client.run(run_id).attempt, len(completions), traces

    with begun(backend, path) as run:
        assert shown() == (1, 0, 0)
        run._open_for = 0.0
        attempt, completions, traces = shown()
        assert (attempt, traces > 0) == (1, True)
        file.write_text("".join([*first, last]))
        run._open_for = 1e9
        assert shown() == (1, completions, traces)  # what is there stays until the rest stands still, too
        run._open_for = 0.0
        assert shown() == (2, completions + 1, traces)


def test_files_that_have_not_changed_are_not_read_again(backend: Backend, tmp_path: Path) -> None:
    path = written(tmp_path / "run.jsonl", [group(0, 0)])
    with begun(backend, path) as run:
        looks: list[int] = []
        read = run._files.steps
        run._files.steps = lambda start, *, final: looks.append(start) or read(start, final=final)  # type: ignore[method-assign, func-returns-value]
        for _ in range(3):
            run.advance(final=False)
        assert looks == [0]
        with path.open("a") as file:
            file.write(json.dumps(group(1, 0)) + "\n")
        for _ in range(3):
            run.advance(final=False)
        assert looks == [0, 0]
        assert backend.client.run(run.delivery.tally.run_id).progress.step == 2


def recorded(backend: Backend, run_id: int, *, traces: bool) -> dict[str, Any]:
    """What is recorded of a run, by steps and by metrics, with the values of its tokens."""
    steps = [one.step for one in backend.client.steps(run_id)]
    groups = {step: [one.model_dump() for one in groups_of(backend, run_id, step)] for step in steps}
    for completion in [one for of in groups.values() for each in of for one in each["completions"]]:
        has_trace = completion.pop("has_trace")
        if has_trace and traces:
            completion["tokens"] = backend.client.tokens(completion["id"]).model_dump(exclude={"completion_id"})
    for one in [each for of in groups.values() for each in of]:
        for each in (one, *one["completions"]):
            for name in NAMED_ANEW & each.keys():
                del each[name]
    series = backend.client.metrics(run_id).series
    return {"groups": groups, "metrics": {name: (list(one.step), list(one.value)) for name, one in series.items()}}


NAMED_ANEW = {"id", "run_id", "attempt", "created_at", "group_id"}
BEING_WRITTEN = {
    "art": "trajectories/train/0003.parquet",
    "nemo-rl": "train_data_step2.jsonl",
    "openenv": "results.jsonl",
    "tinker": "iteration_000002/train_rollout_summaries.jsonl",
    "verifiers/prime-rl": "rollouts/step_3/train/all/traces.jsonl",
    "verifiers/verifiers": "traces.jsonl",
    "verl/legacy": "3.jsonl",
    "verl/v1": "rollouts/3.jsonl",
}
"""The file of the newest step that its trainer writes first."""


def with_half_of_the_newest_step(path: Path, being_written: Path) -> Path:
    """The path, where half of that file is there, none of the others with its number, and of logs a part of the last line."""
    for file in [one for one in path.rglob("*") if one.suffix in (".jsonl", ".parquet")]:
        numbers, newest = (re.findall(r"\d+", str(one.relative_to(path))) for one in (file, being_written))
        whole = file.read_bytes()
        if file == being_written:
            file.write_bytes(whole[: len(whole) // 2])
        elif not numbers:
            file.write_bytes(whole[: whole.rindex(b"\n", 0, -1) + 10])
        elif int(numbers[0]) == int(newest[0]):
            file.unlink()
    return path


@pytest.mark.parametrize("pieces", [pytest.param(False, marks=pytest.mark.thorough), True], ids=["whole", "in pieces"])
@pytest.mark.parametrize("name", [str(path.relative_to(FOREIGN)) for path, _ in find(FOREIGN)])
def test_what_is_followed_while_it_grows_is_what_one_import_brings(
    backend: Backend, tmp_path: Path, name: str, pieces: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupscope.files.run_import.OPEN_SECONDS", 0.0)
    once, _ = imported(backend, copytree(FOREIGN / name, tmp_path / "once"))
    if pieces:
        monkeypatch.setattr("groupscope.files.run_import.PART_CHARACTERS", 500)
    growing = copytree(FOREIGN / name, tmp_path / "followed")
    with begun(backend, with_half_of_the_newest_step(growing, growing / BEING_WRITTEN[name])) as run:
        for _ in range(3):
            run.advance(final=False)
        copytree(FOREIGN / name, growing, dirs_exist_ok=True)
        for _ in range(3):
            run.advance(final=False)
        expected, shown = (backend.client.steps(one) for one in (once.id, run.delivery.tally.run_id))
        assert [one.step for one in shown] == [one.step for one in expected]
        run.advance(final=True)
        run.delivery.finish()
    expected, found = (recorded(backend, one, traces=not pieces) for one in (once.id, run.delivery.tally.run_id))
    assert found["groups"] == expected["groups"]
    assert found["metrics"] == expected["metrics"]


def test_a_validation_long_before_anything_else_needs_no_second_attempt(backend: Backend, tmp_path: Path) -> None:
    """verl validates before it trains, and writes the validation's metrics and the first rollouts minutes after its rows."""
    made = FOREIGN / "verl" / "v1"
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "0.jsonl").write_bytes((made / "checks" / "0.jsonl").read_bytes())
    with begun(backend, tmp_path) as run:
        run.advance(final=False)
        assert len(groups_of(backend, 1, 0)) == 3
        copytree(made, tmp_path, dirs_exist_ok=True)
        run.advance(final=True)
    assert (backend.client.run(1).attempt, len(groups_of(backend, 1, 0))) == (1, 6)
    assert backend.client.metrics(1).series["eval/val-core/arithmetic/reward/mean@4"].step == [0, 2, 3]
