"""A sample of a task before a launch: the prompts and the scores that training would have, and every error in sight."""

from pathlib import Path

import pytest
from wire import Wire, claimed, worker

from backend.contract.groups import GroupReport
from backend.contract.protocol import Fail, Finish, Report
from worker.job import run_claim

TASK: dict[str, object] = {"kind": "arithmetic", "high": 7}
SAMPLE: dict[str, object] = {
    "kind": "sample",
    "task": TASK,
    "task_prompts": 3,
    "group_size": 4,
    "decoding": {"max_new_tokens": 24},
    "rewards": {},
    "seed": 5,
}
REWARD = """
def picky(prompts, completions, **columns):
    if " x " in str(completions):
        raise ValueError("no <b>products</b> here")
    return [1.0]
"""


def sampled(wire: Wire, home: Path, **changes: object) -> list[GroupReport]:
    run_claim(worker(home, wire), claimed({**SAMPLE, **changes}))
    assert isinstance(wire.told[-1], Finish)
    [report] = [message for message in wire.told if isinstance(message, Report)]
    return report.groups


@pytest.mark.slow
def test_the_prompts_are_those_of_the_first_step_of_a_run_with_this_task_and_seed(tmp_path: Path) -> None:
    groups = sampled(Wire(), tmp_path / "sample")
    wire = Wire()
    run = {
        "kind": "grpo",
        "task": TASK,
        "sampling": {"prompts_per_step": 3, "group_size": 4, "max_new_tokens": 24},
        "budget": {"steps": 1, "seed": 5, "eval_every": 0, "checkpoint_every": 0},
        "telemetry": {"probe_prompts": 0, "token_traces": "none"},
    }
    run_claim(worker(tmp_path / "run", wire), claimed(run))
    first = next(message for message in wire.told if isinstance(message, Report) and message.groups)
    assert [group.prompt_id for group in groups] == [group.prompt_id for group in first.groups]
    assert [group.answer for group in groups] == [group.answer for group in first.groups]
    assert all(len(group.completions) == 4 for group in groups)


@pytest.mark.parametrize("kind", ["group_center", "softmax", "normalize_then_sum", "best_worst"])
def test_advantages_are_those_of_the_configured_estimator(tmp_path: Path, kind: str) -> None:
    groups = sampled(Wire(), tmp_path, algorithm={"advantage": {"kind": kind}})
    for group in groups:
        rewards = [completion.reward or 0.0 for completion in group.completions]
        advantages = [completion.advantage or 0.0 for completion in group.completions]
        if kind == "group_center":
            mean = sum(rewards) / len(rewards)
            assert advantages == pytest.approx([reward - mean for reward in rewards], abs=1e-12)
        elif kind == "softmax":
            assert sum(advantages) == pytest.approx(1)
        elif kind == "best_worst":
            assert set(advantages) <= {-1.0, 0.0, 1.0}
        assert group.state == ("live" if len(set(rewards)) > 1 else "zero_variance")


def test_a_critic_that_has_learned_nothing_gives_no_advantages(tmp_path: Path) -> None:
    groups = sampled(Wire(), tmp_path, algorithm={"advantage": {"kind": "gae"}})
    assert {completion.advantage for group in groups for completion in group.completions} == {None}


def test_a_reward_that_raises_fails_no_sample_and_its_traceback_stands_at_each_completion(tmp_path: Path) -> None:
    (tmp_path / "picky_reward.py").write_text(REWARD)
    wire = Wire()
    function = {"kind": "python", "name": "picky", "weight": 1.0, "function": "picky_reward:picky"}
    allowed = worker(tmp_path / "home", wire, reward_functions="picky_reward:picky", reward_path=tmp_path)
    run_claim(allowed, claimed({**SAMPLE, "rewards": {"functions": [function]}}))
    [report] = [message for message in wire.told if isinstance(message, Report)]
    completions = [completion for group in report.groups for completion in group.completions]
    failed = [one for one in completions if one.reward is None]
    assert len(failed) > 0.2 * len(completions)  # more than a run would bear
    for one in failed:
        assert one.rewards[0].raw is None
        assert "ValueError: no <b>products</b> here" in (one.rewards[0].error or "")
    assert any(group.state == "unscored" for group in report.groups)


@pytest.mark.parametrize(("asked", "outcome"), [("stop", "stopped"), ("pause", "paused")])
def test_a_sample_that_nobody_wants_any_more_ends_in_its_midst(tmp_path: Path, asked: str, outcome: str) -> None:
    wire = Wire()
    wire.requested = "stop" if asked == "stop" else "pause"
    long = {"group_size": 64, "task_prompts": 16, "decoding": {"max_new_tokens": 400, "temperature": 3.0}}
    run_claim(worker(tmp_path, wire), claimed({**SAMPLE, **long}, lease_seconds=0.2))
    assert [message.outcome for message in wire.told if isinstance(message, Finish)] == [outcome]
    assert not any(isinstance(message, Report) for message in wire.told)


def test_a_task_without_items_fails_the_sample_with_its_reason(tmp_path: Path) -> None:
    wire = Wire()
    run_claim(worker(tmp_path, wire), claimed({**SAMPLE, "task": {"kind": "dataset", "source": "upload:1"}}))
    assert isinstance(wire.told[-1], Fail)
