from pathlib import Path

import pytest
from witness import Witness, configured, train


@pytest.mark.slow
def test_the_same_held_out_prompts_are_probed_every_few_steps_and_before_the_last_update(tmp_path: Path) -> None:
    witness = Witness()
    train(
        configured(telemetry={"probe_prompts": 2, "probe_every": 2}, budget={"steps": 4, "eval_every": 0}),
        tmp_path,
        witness,
    )
    probes = {step: [g for g in report.groups if g.state == "probe"] for step, report in witness.steps.items()}
    assert {step for step, groups in probes.items() if groups} == {0, 2, 3}
    assert len({tuple(group.prompt_id for group in probes[step]) for step in (0, 2, 3)}) == 1
    assert [group.index for group in probes[2]] == [3, 4]  # behind the step's three groups
    trained = {g.prompt_id for report in witness.steps.values() for g in report.groups if g.state != "probe"}
    assert not trained & {group.prompt_id for group in probes[0]}
    for group in probes[0]:
        assert len(group.completions) == 4
        assert all(one.reward is not None and one.advantage is None for one in group.completions)


@pytest.mark.slow
@pytest.mark.thorough
def test_probes_change_nothing_of_the_training(tmp_path: Path) -> None:
    told = []
    for count in (0, 3):
        witness = Witness()
        config = configured(telemetry={"probe_prompts": count, "probe_every": 1}, budget={"steps": 3, "eval_every": 0})
        train(config, tmp_path / str(count), witness)
        told.append([[g.completions for g in r.groups if g.state != "probe"] for r in witness.steps.values()])
    assert told[0] == told[1]
