"""verl's files, as verl 0.9.1's own writers made them (scripts/foreign_files.py), are imported as what was given to them."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from importing import FOREIGN, groups_of, imported
from serving import Backend

from backend.contract.groups import Group
from groupscope.files.catalog import find

VERL = FOREIGN / "verl"
EXPECTED: dict[str, Any] = json.loads((VERL / "expected.json").read_text())


def require_rows(groups: Sequence[Group], rows: Sequence[Mapping[str, Any]], extras: Sequence[str] = ()) -> None:
    by_group: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_group.setdefault(row["uid"].rsplit("_", 2)[0], []).append(row)
    assert len(groups) == len(by_group)
    for group, of_group in zip(groups, by_group.values(), strict=True):
        truth = of_group[0]["gts"]
        assert (group.prompt, group.answer) == (
            of_group[0]["input"],
            truth if isinstance(truth, str) else json.dumps(truth),
        )
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
    logged = {
        name: name if not name.startswith("val-") else f"eval/{name}" for name in series_names(EXPECTED["metrics"])
    }
    assert set(series) == set(logged.values())
    for name, ours in logged.items():
        found = {int(step): values[name] for step, values in EXPECTED["metrics"].items() if name in values}
        shift = 0 if ours != name else 1
        assert series[ours].step == [step - shift for step in found]
        assert series[ours].value == [None if math.isnan(value) else value for value in found.values()]


def series_names(metrics: Mapping[str, Mapping[str, float]]) -> list[str]:
    return list(dict.fromkeys(name for values in metrics.values() for name in values))


def test_rollouts_without_uids_are_grouped_by_their_prompt(backend: Backend) -> None:
    run, _ = imported(backend, VERL / "legacy")
    assert run.progress.step == 3
    for step in range(3):
        require_rows(groups_of(backend, run.id, step), EXPECTED["legacy"][str(step + 1)], ("acc", "length_penalty"))


def test_each_training_below_a_folder_is_a_run(backend: Backend) -> None:
    assert [(path.name, format_.name) for path, format_ in find(VERL)] == [("legacy", "verl"), ("v1", "verl")]
    _, said = imported(backend, VERL)
    assert len(backend.client.runs(kind="recorded").items) == 2
    assert sum("steps" in line for line in said) == 2


def test_what_hydra_left_is_its_configuration(backend: Backend, tmp_path: Path) -> None:
    path = copytree(VERL / "v1", tmp_path / "verl")
    (path / ".hydra").mkdir()
    (path / ".hydra" / "config.yaml").write_text(
        "actor_rollout_ref:\n  model: {path: Qwen/Qwen3-0.6B}\n  rollout: {n: 4, temperature: 0.7}\ndata: {train_batch_size: 3}\n"
    )
    run, _ = imported(backend, path)
    sampling = run.config["sampling"]
    assert isinstance(sampling, dict)
    assert (sampling["group_size"], sampling["prompts_per_step"], sampling["temperature"]) == (4, 3, 0.7)
    assert run.config["model"] == {"source": "Qwen/Qwen3-0.6B"}
    assert run.config["theirs"]["data"] == {"train_batch_size": 3}  # type: ignore[index,call-overload]


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
