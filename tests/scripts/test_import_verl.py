"""verl's files, as verl 0.9.1's own writers made them (scripts/foreign_files.py), are imported as what was given to them."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from importing import FOREIGN, following, groups_of, imported, steps_of
from processes import wait_until
from serving import Backend

from backend.contract.groups import Group
from groupscope.files.catalog import find

VERL = FOREIGN / "verl"
VALIDATED = "eval/val-core/arithmetic/reward/mean@4"
EXPECTED: dict[str, Any] = json.loads((VERL / "expected.json").read_text())


def require_rows(groups: Sequence[Group], rows: Sequence[Mapping[str, Any]], extras: Sequence[str] = ()) -> None:
    by_group: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_group.setdefault(row["uid"].rsplit("_", 2)[0], []).append(row)
    assert len(groups) == len(by_group)
    for group, of_group in zip(groups, by_group.values(), strict=True):
        truth = of_group[0]["gts"]
        answer = truth if isinstance(truth, str) else json.dumps(truth)
        assert (group.prompt, group.answer) == (of_group[0]["input"], answer)
        assert [one.text for one in group.completions] == [row["output"] for row in of_group]
        assert [one.reward for one in group.completions] == [row["score"] for row in of_group]
        for one, row in zip(group.completions, of_group, strict=True):
            known = {name: None if math.isnan(row[name]) else float(row[name]) for name in extras}
            assert {score.name: score.raw for score in one.rewards} == {"score": row["score"], **known}
            assert [score.weight for score in one.rewards] == [1.0, *[0.0] * len(extras)]


def test_rollouts_with_uids_validations_and_metrics_are_one_run(backend: Backend) -> None:
    run, said = imported(backend, VERL / "v1")
    assert (run.status, run.progress.step, run.config["trainer"]) == ("finished", 3, {"name": "verl", "version": ""})
    assert said[-1] == f"run {run.id}: 3 steps, 18 groups, 72 completions"
    for step in range(4):
        groups = groups_of(backend, run.id, step)
        trained = [group for group in groups if group.state != "probe"]
        require_rows(trained, EXPECTED["v1"].get(str(step + 1), ()))
        require_rows([group for group in groups if group.state == "probe"], EXPECTED["validations"].get(str(step), ()))
    series = backend.client.metrics(run.id).series
    names = dict.fromkeys(name for values in EXPECTED["metrics"].values() for name in values)
    logged = {name: name if not name.startswith("val-") else f"eval/{name}" for name in names}
    ours = {"reward", "reward_std", "frac_reward_zero_std", "grad_norm"}  # of the groups, or what theirs mean
    assert set(series) == {*logged.values(), *ours}
    assert series["reward"].value == series["critic/score/mean"].value
    for name, ours in logged.items():
        found = {int(step): values[name] for step, values in EXPECTED["metrics"].items() if name in values}
        shift = 0 if ours != name else 1
        assert series[ours].step == [step - shift for step in found]
        assert series[ours].value == [None if math.isnan(value) else value for value in found.values()]


def test_each_training_below_a_folder_is_a_run_and_without_uids_prompts_make_the_groups(
    backend: Backend, tmp_path: Path
) -> None:
    folder = copytree(VERL, tmp_path / "verl")  # an import holds its path, and another test imports that one
    assert [(path.name, format_.name) for path, format_ in find(folder)] == [("legacy", "verl"), ("v1", "verl")]
    _, said = imported(backend, folder)
    assert sum("steps" in line for line in said) == 2
    _, legacy = backend.client.runs(kind="recorded").items  # the newest first
    assert legacy.progress.step == 3
    for step in range(3):
        require_rows(groups_of(backend, legacy.id, step), EXPECTED["legacy"][str(step + 1)], ("acc", "length_penalty"))


def test_what_hydra_left_is_its_configuration(backend: Backend, tmp_path: Path) -> None:
    path = copytree(VERL / "v1", tmp_path / "verl")
    (path / ".hydra").mkdir()
    (path / ".hydra" / "config.yaml").write_text(
        "actor_rollout_ref:\n  model: {path: Qwen/Qwen3-0.6B}\n  rollout: {n: 4, temperature: 0.7}\ndata: {train_batch_size: 3}\n"
    )
    config: Any = imported(backend, path)[0].config
    sampling = config["sampling"]
    assert (sampling["group_size"], sampling["prompts_per_step"], sampling["temperature"]) == (4, 3, 0.7)
    assert config["model"] == {"source": "Qwen/Qwen3-0.6B"}
    assert config["theirs"]["data"] == {"train_batch_size": 3}


@pytest.mark.parametrize("torn", ['{"input": "a", "output": "b", "sco', '["no row"]\n', "\udcff not text\n"])
def test_a_line_that_cannot_be_read_is_counted_and_shown_and_takes_nothing_else_along(
    backend: Backend, tmp_path: Path, torn: str
) -> None:
    path = copytree(VERL / "legacy", tmp_path / "verl")
    with (path / "3.jsonl").open("a", errors="surrogateescape") as file:
        file.write(torn)
    run, said = imported(backend, path)
    assert said[-1].startswith(
        f"run {run.id}: 3 steps, 9 groups, 36 completions; 1 line could not be read:\n  3.jsonl, line 13: "
    )
    [line] = backend.client.logs(run.id).items
    assert "left out: 3.jsonl, line 13" in line.message


def test_a_training_is_followed_from_its_first_validation_to_its_last(backend: Backend, tmp_path: Path) -> None:
    """verl writes a step's rollouts in a thread, so that they may come after its metrics."""
    made, said = VERL / "v1", list[str]()
    path = tmp_path / "run"
    for folder in ("rollouts", "checks"):
        (path / folder).mkdir(parents=True)

    def give(name: str) -> None:
        (path / name).write_bytes((made / name).read_bytes())

    lines = (made / "log.jsonl").read_bytes().splitlines(keepends=True)
    with following(backend.client, path, said), (path / "log.jsonl").open("ab", buffering=0) as log:
        give("checks/0.jsonl")
        log.write(lines[0])
        wait_until(lambda: backend.client.groups(1).items, "the first validation is there")
        for step in (1, 2, 3):
            log.write(lines[step])
            if (made / "checks" / f"{step}.jsonl").exists():
                give(f"checks/{step}.jsonl")
            give(f"rollouts/{step}.jsonl")
            wait_until(lambda: steps_of(backend) == step, "the step is there")  # noqa: B023 — within the step
        wait_until(lambda: backend.client.metrics(1).series[VALIDATED].step == [0, 2, 3], "the last one, too")
        wait_until(lambda: len(groups_of(backend, 1, 3)) == 3, "and what it sampled")
    run = backend.client.run(1)
    assert (run.attempt, run.status, run.progress.step) == (1, "finished", 3)
    assert [sum(one.states.values()) for one in backend.client.steps(1)] == [6, 3, 6, 3]
