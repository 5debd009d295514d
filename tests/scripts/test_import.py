"""`groupscope import` of Groupscope's own format: again and again without doubling, grown, torn, followed, and what is said."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import processes
import pytest
from importing import following, groups_of, imported, recorded, steps_of
from processes import wait_until
from serving import TOKEN, Backend

from backend.cli import app
from backend.contract.client import ApiError
from backend.contract.records import Run

DOCS = Path(__file__).parents[2] / "docs"
KNOWN = {"rewards": {"functions": [{"name": "right"}]}}
HEADER = {"groupscope": 1, "name": "mine", "trainer": "a loop", "known": KNOWN}


def group(step: int, place: int = 0) -> dict[str, Any]:
    completions = [
        {"text": str(reward), "reward": reward, "rewards": {"right": reward}, "advantage": reward - 0.5}
        for reward in (1.0, 0.0)
    ]
    return {"step": step, "prompt": f"What is {place}?", "completions": completions}


def metrics(step: int) -> dict[str, Any]:
    return {"step": step, "metrics": {"reward": float(step)}}


def write(path: Path, *lines: Any) -> None:
    with path.open("a") as file:
        for line in lines:
            file.write(line if isinstance(line, str) else json.dumps(line) + "\n")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    write(path, HEADER)
    for step in range(3):
        write(path, group(step), group(step, 1), metrics(step))
    return path


def rewards_of(backend: Backend, run: Run) -> list[int]:
    return list(backend.client.metrics(run.id).series["reward"].step)


def counts(backend: Backend | processes.Site, run: Run) -> dict[int, int]:
    return {one.step: sum(one.states.values()) for one in backend.client.steps(run.id)}


def test_a_second_import_adds_nothing_but_what_is_new_of_a_grown_file_and_a_step_that_grew_is_replaced(
    backend: Backend, file: Path
) -> None:
    first, said = imported(backend, file, name="other", tags=["a"])
    assert (first.name, first.tags) == ("other", ["a"])
    assert (first.status, first.progress.step, first.attempt) == ("finished", 3, 1)
    assert said == [f"{file} (groupscope) is run {first.id}", f"run {first.id}: 3 steps, 6 groups, 12 completions"]
    _, said = imported(backend, file)
    assert said[-1] == f"run {first.id}: nothing new"
    run = recorded(backend)
    assert (run.id, run.attempt, run.status) == (first.id, 1, "finished")
    assert (counts(backend, run), rewards_of(backend, run)) == ({0: 2, 1: 2, 2: 2}, [0, 1, 2])
    write(file, group(3), metrics(3))
    run, said = imported(backend, file)
    assert said[-1] == f"run {run.id}: 1 step, 1 group, 2 completions"
    assert (run.attempt, run.status, counts(backend, run)) == (2, "finished", {0: 2, 1: 2, 2: 2, 3: 1})
    write(file, group(3, 1))
    run, _ = imported(backend, file)
    assert (run.attempt, counts(backend, run), rewards_of(backend, run)) == (3, {0: 2, 1: 2, 2: 2, 3: 2}, [0, 1, 2, 3])
    run, _ = imported(backend, file, from_step=1)
    assert (run.attempt, counts(backend, run), rewards_of(backend, run)) == (4, {0: 2, 1: 2, 2: 2, 3: 2}, [0, 1, 2, 3])


def test_a_killed_import_goes_on_where_it_was(backend: Backend, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = backend.client.report

    def killed(run_id: int, message: Any) -> Any:
        if message.step == 2:
            raise KeyboardInterrupt
        return report(run_id, message)

    with monkeypatch.context() as broken:
        broken.setattr(backend.client, "report", killed)
        with pytest.raises(KeyboardInterrupt):
            imported(backend, file)
    assert recorded(backend).status == "running"
    run, _ = imported(backend, file)
    assert (run.attempt, run.status, counts(backend, run)) == (1, "finished", {0: 2, 1: 2, 2: 2})


def test_a_step_that_is_larger_than_a_report_comes_in_parts(
    backend: Backend, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupscope.files.run_import.PART_CHARACTERS", 3)
    monkeypatch.setattr("groupscope.files.own.PIECE", 2)
    write(file, *(group(3, place) for place in range(20)), metrics(3))
    for _ in range(2):
        run, _ = imported(backend, file)
        assert (run.attempt, run.progress.step, counts(backend, run)) == (1, 4, {0: 2, 1: 2, 2: 2, 3: 20})
    assert [one.prompt for one in groups_of(backend, run.id, 3)] == [f"What is {place}?" for place in range(20)]


def test_what_cannot_be_read_is_counted_and_shown(backend: Backend, file: Path) -> None:
    wrong = [
        ("{", "not JSON: Expecting property name enclosed in double quotes at character 3"),
        ('["a"]', "an object with a step is expected"),
        ('{"step": -1}', "step is -1, and a number from 0 on is expected"),
        ('{"step": 0, "prompt": "late", "completions": [{"text": ""}]}', "step 0 comes after step 2; write each step"),
        ('{"step": 2, "prompt": "p", "completions": []}', "completions: a list with at least one is expected"),
        ('{"step": 2, "prompt": "p", "completions": [{}]}', "text: a text is expected"),
    ]
    write(file, *(f"{line}\n" for line, _ in wrong), group(2, 2))
    run, said = imported(backend, file)
    first, *lines = said[-1].splitlines()
    assert first == f"run {run.id}: 3 steps, 7 groups, 14 completions; 6 lines could not be read:"
    for at, (line, (_, why)) in enumerate(zip(lines, wrong, strict=True), 11):
        assert line.startswith(f"  run.jsonl, line {at}: {why}")
    assert len(backend.client.logs(run.id).items) == 6
    assert counts(backend, run)[2] == 3


def test_a_torn_last_line_is_read_once_it_is_whole(backend: Backend, file: Path) -> None:
    line = json.dumps(group(3))
    write(file, line[:40])
    run, said = imported(backend, file)
    assert "1 line could not be read:\n  run.jsonl, line 11: not JSON" in said[-1]
    write(file, line[40:] + "\n")
    run, said = imported(backend, file)
    assert (counts(backend, run), said[-1]) == (
        {0: 2, 1: 2, 2: 2, 3: 1},
        f"run {run.id}: 2 steps, 3 groups, 6 completions",  # one of them without the torn line in its log
    )


def test_a_followed_file_shows_each_step_and_waits_for_a_torn_line(backend: Backend, tmp_path: Path) -> None:
    said: list[str] = []
    path = tmp_path / "run.jsonl"
    with following(backend.client, tmp_path, said):
        wait_until(lambda: said, "it waits for a file")
        write(path, HEADER, group(0), metrics(0))
        wait_until(lambda: steps_of(backend) == 1, "the first step is there")
        line = json.dumps(group(1))
        write(path, line[:30])
        looked = path.stat().st_size
        write(path, line[30:] + "\n", metrics(1))
        wait_until(lambda: steps_of(backend) == 2, "the second, too")
        write(path, group(1, 1))  # which was sent already
        wait_until(lambda: counts(backend, recorded(backend)).get(1) == 2, "what came later of a step")
    run = recorded(backend)
    assert looked
    assert (run.status, counts(backend, run), rewards_of(backend, run)) == ("finished", {0: 1, 1: 2}, [0, 1])
    assert said[0] == f"nothing can be imported from {tmp_path} yet; waiting"


def test_two_processes_do_not_import_one_path_and_who_stops_the_record_on_its_page_ends_the_import(
    backend: Backend, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupscope.files.delivery.BEAT_SECONDS", 0.05)
    said: list[str] = []
    with following(backend.client, file, said):
        wait_until(lambda: steps_of(backend) == 3, "it is there")
        _, others = imported(backend, file)
        assert others == [f"{file} is being imported by another process: leave it to that one, or end it"]
        backend.client.command(recorded(backend).id, "stop")
        wait_until(lambda: recorded(backend).status == "stopped", "it has ended")
    assert said[-1].endswith("is imported no further: somebody stopped it on its page")
    assert recorded(backend).attempt == 1


def test_a_backend_that_is_busy_is_asked_again(backend: Backend, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report, refused = backend.client.report, []

    def busy(run_id: int, message: Any) -> Any:
        if len(refused) < 2:
            refused.append(message)
            raise ApiError(503, "busy", "The database is busy.")
        return report(run_id, message)

    monkeypatch.setattr(backend.client, "report", busy)
    run, said = imported(backend, file)
    assert (run.status, counts(backend, run), len(refused)) == ("finished", {0: 2, 1: 2, 2: 2}, 2)
    assert "The database is busy.; trying again" in said


@pytest.mark.slow
def test_a_backend_that_is_killed_while_files_grow_loses_and_doubles_nothing(tmp_path: Path, file: Path) -> None:
    said: list[str] = []
    with processes.Site(tmp_path / "site") as site:
        first = site.backend()
        with following(site.client, file, said):
            wait_until(lambda: site.client.runs().items and site.client.run(1).progress.step == 3, "it is there")
            first.kill()
            first.wait()
            write(file, group(3), metrics(3))
            wait_until(lambda: any("trying again" in line for line in said), "it is missed")
            site.backend()
            write(file, group(4), metrics(4))
            wait_until(lambda: site.client.run(1).progress.step == 5, "the rest is there")
        assert counts(site, site.client.run(1)) == {0: 2, 1: 2, 2: 2, 3: 1, 4: 1}
        assert site.client.metrics(1).series["reward"].step == list(range(5))


WRONG: dict[str, tuple[Callable[[Path], None], str]] = {
    "nothing there": (lambda path: None, "does not exist"),
    "an empty folder": (lambda path: path.mkdir(), "is empty: name the folder into which the trainer writes"),
    "something else": (
        lambda path: path.write_text("a: 1\n") and None,
        "has nothing that can be imported. Known are: JSON lines",
    ),
    "another version": (
        lambda path: write(path, {"groupscope": 7}),
        "is of version 7 of the format, and this program reads version 1: install a later release",
    ),
    "another header": (
        lambda path: write(path, {"groupscope": 1, "known": {"sampling": {"group_size": "many"}}}),
        "describes a run that cannot be recorded: sampling.group_size: Input should be a valid integer",
    ),
}


@pytest.mark.parametrize("why", [*WRONG, "a backend that is away"])
def test_what_is_no_run_is_said_in_a_sentence_and_a_backend_that_is_away_is_not_waited_for(
    backend: Backend, tmp_path: Path, why: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUPSCOPE_TOKEN", TOKEN)
    away = "http://127.0.0.1:1"
    make, sentence = WRONG.get(why, (lambda path: write(path, HEADER), f"the backend at {away} does not answer"))
    path = tmp_path / "there"
    make(path)
    with pytest.raises(SystemExit) as ended:
        app(["import", str(path), "--backend", backend.url if why in WRONG else away])
    assert ended.value.code == 1
    said = capsys.readouterr()
    assert sentence in (said.err + said.out)
    assert not backend.client.runs(kind="recorded").items


def test_a_run_that_was_deleted_ends_its_import_and_comes_anew_with_the_next(backend: Backend, file: Path) -> None:
    imported(backend, file)
    first = recorded(backend).id
    said: list[str] = []
    with following(backend.client, file, said):
        wait_until(lambda: said, "it has begun")
        backend.client.delete_run(first)
        write(file, group(3))
        wait_until(lambda: f"There is no run {first}" in said[-1], "it has ended")
    run, _ = imported(backend, file)
    assert (run.attempt, counts(backend, run)) == (1, {0: 2, 1: 2, 2: 2, 3: 1})


def test_the_example_of_the_docs_is_read_as_it_says(backend: Backend, tmp_path: Path) -> None:
    [example] = re.findall(r"```jsonl\n(.*?)```", (DOCS / "format.md").read_text(), re.DOTALL)
    (path := tmp_path / "example.jsonl").write_text(example)
    run, said = imported(backend, path)
    assert said[-1] == f"run {run.id}: 2 steps, 3 groups, 6 completions"
    assert (run.name, run.status, run.progress.step) == ("my experiment", "finished", 2)
    assert (run.config["trainer"], run.config["theirs"]) == ({"name": "my loop", "version": "1.2"}, {"lr": 1e-06})
    first, second = groups_of(backend, run.id, 0)
    assert (first.prompt, first.answer, first.state, first.reward_mean) == ("What is 2 + 2?", "4", "live", 0.55)
    right, wrong = first.completions
    assert (right.text, right.reward, right.advantage) == ("4", 1.1, 0.55)
    assert [(one.name, one.raw, one.weight) for one in right.rewards] == [("correct", 1.0, 1.0), ("short", 0.5, 0.2)]
    assert (wrong.finish_reason, right.token_count) == ("length", 1)
    trace = backend.client.tokens(right.id)
    assert (trace.token_ids, trace.texts, trace.old_logprob, trace.entropy) == ([19], ["4"], [-0.25], [0.5])
    spoken, messages = second.completions
    for one in (spoken, messages):
        assert [(turn.role, turn.tool, turn.trained) for turn in one.turns] == [
            ("assistant", "add", True),
            ("tool", "add", False),
            ("assistant", None, True),
        ]
    assert (spoken.turns[0].policy_version, spoken.turns[1].failed, spoken.turns[2].reward) == ("17", False, 1.0)
    [probe] = groups_of(backend, run.id, 1)
    assert probe.state == "probe"
    series = backend.client.metrics(run.id).series
    assert (series["loss"].value, series["eval/reward"].step) == ([0.5, 0.25], [1])
