"""What a format makes of lines that no writer should have written, of files that change meanwhile, and of more metrics than a completion can have."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copytree
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from importing import FOREIGN, opened

from groupscope.files import catalog, prime_rl, verl
from groupscope.files.catalog import find
from groupscope.files.format import Lines, MetricLines, Run, Step, Unreadable, number
from groupscope.files.grouped import GroupedLines

EPISODE = FOREIGN / "verifiers" / "verifiers" / "traces.jsonl"
HUGE = "1" + "0" * 400


def wrong(steps: Iterator[Step]) -> list[str]:
    return [one for step in steps for one in step.unreadable]


@pytest.mark.parametrize(
    "line",
    [
        '{"prompt": "q", "completions": [{"text": "x", "tokens": {"entropy": [1.0]}}]}',
        '{"prompt": "q", "completions": [{"text": "x", "tokens": {"ids": [Infinity]}}]}',
        f'{{"step": {2**44}, "metrics": {{"loss": 1.0}}}}',
        f'{{"step": {HUGE}, "metrics": {{"loss": 1.0}}}}',
    ],
    ids=["tokens without ids", "an infinite id", "a step too high", "a step of 400 digits"],
)
def test_a_bad_line_of_our_format_is_said_and_the_next_one_read(line: str, tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    file.write_text(f'{{"groupscope": 1}}\n{line}\n{{"metrics": {{"loss": 0.5}}}}\n')
    steps = list(opened("groupscope", file).steps(0, final=True))
    assert steps[-1].metrics["loss"] == 0.5
    assert [one.split(":")[0] for one in wrong(iter(steps))] == ["run.jsonl, line 2"]
    assert (number(int(HUGE)), number(1), number(float("inf"))) == (None, 1.0, None)


@pytest.mark.parametrize("read", [prime_rl._metrics_of, verl._metrics_of])
@pytest.mark.parametrize(
    "line", ["[1]", "null", '"x"', '{"step": Infinity, "data": {}}', f'{{"step": {2**44}, "data": {{}}}}']
)
def test_a_line_without_metrics_is_said_with_the_first_step_that_has_some(
    read: Callable[[Any], Any], line: str, tmp_path: Path
) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text(f'{line}\n{{"step": 3, "data": {{"loss": 0.5}}}}\n')
    metrics = MetricLines(file, read)
    metrics.catch_up(0, final=True)
    [step] = metrics.steps()
    assert metrics.unreadable(step) == ["metrics.jsonl, line 1: no step with metrics"]
    assert metrics.unreadable(0) == []


def test_a_line_is_read_once_its_newline_is_there_and_counted_once(tmp_path: Path) -> None:
    file = tmp_path / "some.jsonl"
    file.write_text('{"a": 1}')
    lines = Lines(file)
    assert list(lines.new()) == []
    with file.open("a") as more:
        more.write('\n{"b": 2}\nbroken\n')
    *read, (at, broken) = lines.new()
    assert (read, at) == ([(1, {"a": 1}), (2, {"b": 2})], 3)
    assert str(broken).startswith("some.jsonl, line 3: ")
    with file.open("a") as more:
        more.write('{"c": 3}')
    assert list(lines.new(final=True)) == [(4, {"c": 3})]


def test_metrics_of_a_file_that_was_cut_are_read_again(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text('{"step": 0, "data": {"loss": 0.5}}\n{"step": 1, "data": {"loss": 0.25}}\n')
    metrics = MetricLines(file, verl._metrics_of)
    metrics.catch_up(0, final=False)
    file.write_text('{"step": 0, "data": {"loss": 0.5}}\n')  # a training that goes on from a checkpoint
    metrics.catch_up(0, final=False)
    with file.open("a") as more:
        more.write('{"step": 1, "data": {"loss": 0.125}}\n{"step": 2, "data": {"loss": 0.0}}\n')
    metrics.catch_up(0, final=False)
    assert [metrics.of(step)["loss"] for step in range(3)] == [0.5, 0.125, 0.0]


def test_a_file_that_was_cut_or_shrinks_between_its_two_readings_is_said(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    file.write_text('{"groupscope": 1}\n' + "".join(f'{{"step": {n}, "metrics": {{"loss": 1.0}}}}\n' for n in range(3)))
    run = opened("groupscope", file)
    assert [one.step for one in run.steps(0, final=False)] == [0, 1, 2]
    file.write_text('{"groupscope": 1}\n{"step": 0, "metrics": {"loss": 2.0}}\n')
    with pytest.raises(Unreadable, match=r"shorter than it was.*--from-step 0"):
        list(run.steps(2, final=False))
    file.write_text('{"k": 1}\n{"k": 2}\n')
    lines = GroupedLines(file, lambda line: line["k"], called="such line", final=True)
    file.write_text('{"k": 1}\n')
    assert list(lines.read(2, dict)) == []
    assert lines.wrong == ["run.jsonl, line 2: it is not there any more"]


FOLDERS = ("completions_00001.parquet", "train_data_step1.jsonl", "trajectories/train/0.parquet")
PIPES = ("x.jsonl", "1.jsonl", "x.parquet", "x.json", *FOLDERS)


def test_a_pipe_is_no_run_and_what_links_lead_to_is_found_once_by_its_own_name(tmp_path: Path) -> None:
    for name in PIPES:
        path = tmp_path / name.replace("/", "-") / name
        path.parent.mkdir(parents=True)
        os.mkfifo(path)
    assert list(find(tmp_path)) == [], "and is not waited for"
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "run.jsonl").write_text('{"groupscope": 1}\n')
    (folder / "latest.jsonl").symlink_to("run.jsonl")
    (folder / "again").symlink_to(folder)
    assert [path for path, _ in find(tmp_path)] == [folder / "run.jsonl"]


def test_a_training_that_begins_while_runs_are_looked_for_is_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was three: its folder had nothing yet, and what was in it a moment later was found below."""
    inside = catalog._inside

    def begins(folder: Path) -> list[Path]:
        if folder == tmp_path / "training":
            copytree(FOREIGN / "verl" / "v1", folder, dirs_exist_ok=True)
        return inside(folder)

    (tmp_path / "training").mkdir()
    monkeypatch.setattr(catalog, "_inside", begins)
    assert [(path, format_.name) for path, format_ in find(tmp_path)] == [(tmp_path / "training", "verl")]


def test_an_episode_whose_trace_has_no_agent_is_said_and_the_others_are_read(tmp_path: Path) -> None:
    whole = EPISODE.read_text().splitlines()
    bad = json.loads(whole[0])
    del bad["traces"][0]["agent"]
    file = tmp_path / "traces.jsonl"
    file.write_text("\n".join([json.dumps(bad), json.dumps(bad | {"traces": ["x"]}), *whole]) + "\n")
    run = opened("verifiers", file)
    assert run.about.known == opened("verifiers", EPISODE).about.known
    said = wrong(run.steps(0, final=True))
    assert [one.split(":")[0] for one in said] == ["traces.jsonl, line 2", "traces.jsonl, line 1"]


def art(folder: Path, *files: list[dict[str, Any]]) -> Path:
    (folder / "trajectories" / "train").mkdir(parents=True)
    for place, rows in enumerate(files):
        pq.write_table(pa.Table.from_pylist(rows), folder / "trajectories" / "train" / f"{place:04}.parquet")
    return folder


def trajectory(**other: Any) -> dict[str, Any]:
    said = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    return {"group_index": 0, "reward": 1.0, "metrics": "{}", "messages": said, **other}


def test_trajectories_that_are_none_are_said_and_others_read_from_the_assistants_first_message(tmp_path: Path) -> None:
    folder = art(tmp_path, [trajectory(messages=None), trajectory(group_index=1)])
    steps = list(opened("art", folder).steps(0, final=False))
    [group] = [one for step in steps for one in step.groups]
    assert (group.prompt, [turn.text for turn in group.completions[0].turns]) == ("q", ["a"])
    assert [one.split(":")[0] for one in wrong(iter(steps))] == ["train/0000.parquet, group 0"]
    assert not any(step.open for step in steps)


def measured(run: Run) -> tuple[dict[str, Any], list[list[str]]]:
    """The weights that a run states, and the names of each completion's values."""
    rewards: Any = run.about.known["rewards"]
    completions = [one for step in run.steps(0, final=True) for group in step.groups for one in group.completions]
    return {one["name"]: one["weight"] for one in rewards["functions"]}, [list(one.rewards) for one in completions]


def test_metrics_beyond_the_most_are_cut_and_one_that_the_first_does_not_have_weighs_nothing(tmp_path: Path) -> None:
    many = {f"m{place}": 1.0 for place in range(100)}
    weights, [names] = measured(opened("art", art(tmp_path / "many", [trajectory(metrics=json.dumps(many))])))
    assert names == list(weights) == ["reward", *list(many)[:63]]
    later = art(tmp_path / "later", [trajectory()], [trajectory(metrics='{"late": 7}')])
    assert measured(opened("art", later)) == ({"reward": 1.0, "late": 0.0}, [["reward"], ["reward", "late"]])


def test_a_metric_that_the_first_episode_does_not_have_weighs_nothing(tmp_path: Path) -> None:
    path = copytree(FOREIGN / "openenv", tmp_path / "run")
    first = json.loads((path / "results.jsonl").read_text().splitlines()[0])
    with (path / "results.jsonl").open("a") as more:
        more.write(json.dumps(first | {"verify_metrics": {"late": 7, "word": "no number"}}) + "\n")
        more.write(json.dumps(first | {"verify_metrics": {f"m{place}": 1 for place in range(100)}}) + "\n")
    weights, names = measured(opened("openenv", path))
    assert (weights["reward"], weights["late"], len(weights)) == (1.0, 0.0, 64)
    assert ["reward", "late"] in names
    assert max(map(len, names)) == 64
