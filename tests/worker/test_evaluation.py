"""What an evaluation measures, what it leaves open, and the held-out prompts that are probed between evaluations."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from judge_service import Service
from processes import wait_until
from pydantic import AnyHttpUrl
from test_learner_axes import scores_of
from witness import Witness, train
from witness import configured as run_of
from worker_models import items, tiny_policy

from backend.contract.grpo import GrpoConfig
from backend.contract.reward import Correctness, Format, Judge, Rewards
from worker.evaluation import evaluate, success
from worker.groups import GroupSampler, Scored
from worker.policy.policy import Policy
from worker.rewards.judge_endpoint import JudgeEndpoint
from worker.rewards.resources import RewardResources
from worker.rewards.scoring import RewardContractError, RewardScorer, Scores
from worker.rollout.engine import Completion, Engine, Request, Rollout
from worker.rollout.sampler import NativeEngine
from worker.settings import JudgeSettings

RIGHT = Correctness(name="right")


def configured(*functions: Correctness | Judge) -> GrpoConfig:
    rewards = Rewards(functions=list(functions), max_unscored=1.0)
    return GrpoConfig.model_validate({"rewards": rewards, "budget": {"eval_samples": 4}})


def test_without_a_reward_that_says_what_is_right_success_is_the_share_of_the_highest_reward() -> None:
    rewards = Rewards(functions=[Format(name="form", weight=3.0)])
    config = GrpoConfig.model_validate({"rewards": rewards, "sampling": {"curriculum": {"uniform": 0.1}}})
    scored = Scores([[]] * 4, np.array([3.0, 1.5, -1.0, math.nan]))
    np.testing.assert_array_equal(success(scored, config), [1.0, 0.5, 0.0, math.nan])


@pytest.mark.slow
def test_a_sample_that_could_not_be_scored_is_neither_right_nor_wrong() -> None:
    config, policy = configured(RIGHT), tiny_policy(reference=False)
    scorable = [replace(item, verifier={"kind": "numeric"}) for item in items(4)]
    broken = replace(items(5)[-1], verifier={"kind": "numeric"}, answer="no number")
    with RewardScorer(config.rewards) as scorer:
        known = evaluate(GroupSampler(policy, NativeEngine(policy), scorer), scorable, config)
        with_broken = evaluate(GroupSampler(policy, NativeEngine(policy), scorer), [*scorable, broken], config)
        nothing = evaluate(GroupSampler(policy, NativeEngine(policy), scorer), [broken], config)
    rates = ("eval/pass@1", "eval/pass@4", "eval/greedy_pass@1", "eval/reward")
    assert all(known[name] > 0 for name in rates)
    assert {name: with_broken[name] for name in rates} == {name: known[name] for name in rates}
    assert all(math.isnan(nothing[name]) for name in rates)


@pytest.mark.slow
@pytest.mark.parametrize("unscored", [0.1, *(pytest.param(one, marks=pytest.mark.thorough) for one in (0.0, 0.3))])
def test_pass_at_n_is_unbiased_whatever_share_of_the_samples_could_not_be_scored(
    monkeypatch: pytest.MonkeyPatch, unscored: float
) -> None:
    """Success rate 0.3 and 4 samples: 1 − 0.7⁴ = 0.76."""
    random, config = np.random.default_rng(4), configured(Correctness(name="r"))
    asked = items(1) * 20_000
    raws = np.where(random.random(80_000) < unscored, np.nan, random.random(80_000) < 0.3)
    rollout = Rollout(asked, [], [], 4, [Completion([5])])
    monkeypatch.setattr(GroupSampler, "sample_and_score", lambda *_, **__: Scored(rollout, scores_of(raws)))
    metrics = evaluate(GroupSampler(cast(Policy, None), cast(Engine, None)), asked, config)
    assert metrics["eval/pass@1"] == pytest.approx(0.3, abs=0.01)
    assert metrics["eval/pass@4"] == pytest.approx(0.7599, abs=0.02)
    assert metrics["eval/scored_items"] == pytest.approx(20_000 * (1 - unscored) ** 4, rel=0.05)


@pytest.mark.slow
def test_what_a_judge_cost_an_evaluation_is_told_with_it() -> None:
    policy = tiny_policy(reference=False)
    config = configured(Judge(name="kind", endpoint="strict"), RIGHT)
    with Service.serving() as service:
        url = AnyHttpUrl(f"{service.url}/v1")
        endpoint = JudgeEndpoint("strict", JudgeSettings(url=url, model="judge-1", requests_per_minute=1e6))
        with RewardScorer(config.rewards, RewardResources(judges={"strict": endpoint})) as scorer:
            metrics = evaluate(GroupSampler(policy, NativeEngine(policy), scorer), items(2), config)
        endpoint.close()
    assert metrics["eval/judge/kind/prompt_tokens"] > 0
    assert metrics["eval/judge/kind/prompt_tokens"] == 100 * len(service.bodies)


class Ended(Exception):
    """Stands for a worker that is told to end."""


def test_an_evaluation_can_be_ended_while_it_scores() -> None:
    policy = tiny_policy(reference=False)
    config, told = configured(RIGHT), []

    def end_at_the_last(done: int) -> None:
        told.append(done)
        if told.count(2 * 5) > 1:  # once when the last completion is finished, then while they are scored
            raise Ended

    with RewardScorer(config.rewards) as scorer, pytest.raises(Ended):
        evaluate(GroupSampler(policy, NativeEngine(policy), scorer), items(2), config, end_at_the_last)


def test_sampling_ends_as_soon_as_scoring_cannot_go_on() -> None:
    policy = tiny_policy(reference=False)
    config = GrpoConfig.model_validate({"rewards": {"functions": [{"kind": "length", "name": "act"}]}})

    class Endless:
        """An engine that gives one group, in which a function breaks its contract, and then samples on."""

        def sample(self, request: Request, **watching: Callable[..., None]) -> list[Completion]:
            watching["on_group"](0, [Completion([5], [-1.0], "stop", "text")])
            wait_until(lambda: watching["on_progress"](1), "somebody ends it")
            raise AssertionError("nobody ended it")

    with (
        RewardScorer(config.rewards, functions_module="tests.worker.rewards.misbehaving") as scorer,
        pytest.raises(RewardContractError),
    ):
        evaluate(GroupSampler(policy, Endless(), scorer), items(2), config)


@pytest.mark.slow
def test_the_same_held_out_prompts_are_probed_every_few_steps_and_before_the_last_update(tmp_path: Path) -> None:
    witness = Witness()
    config = run_of(telemetry={"probe_prompts": 2, "probe_every": 2}, budget={"steps": 4, "eval_every": 0})
    train(config, tmp_path, witness)
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
        config = run_of(telemetry={"probe_prompts": count, "probe_every": 1}, budget={"steps": 3, "eval_every": 0})
        train(config, tmp_path / str(count), witness)
        told.append([[g.completions for g in r.groups if g.state != "probe"] for r in witness.steps.values()])
    assert told[0] == told[1]
