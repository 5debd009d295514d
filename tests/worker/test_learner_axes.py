"""What the learner does beyond the plain clipped loss: a critic, pairs, penalties in the reward, other references."""

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
import torch
from test_learner import gradients, ragged
from worker_models import items, random_policy, roll_out, tiny_policy

from backend.contract.groups import RewardScore
from backend.contract.grpo import GrpoConfig
from worker.credit import Credit, assign_credit, live_in
from worker.group_records import group_reports
from worker.groups import Scored
from worker.learner import Learner, Update
from worker.micro_batches import Batch
from worker.policy.logprobs import TokenBatch
from worker.rewards.scoring import Scores
from worker.rollout.engine import Rollout
from worker.step_report import step_metrics


def configured(algorithm: dict[str, object], tokens: int = 8192, **sampling: object) -> GrpoConfig:
    sampling = {"prompts_per_step": 3, "group_size": 4, "max_new_tokens": 12} | sampling
    optimizer = {"learning_rate": 1e-3, "micro_batch_tokens": tokens, "max_grad_norm": 1e6}
    return GrpoConfig.model_validate({"algorithm": algorithm, "sampling": sampling, "optimizer": optimizer})


def scores_of(rewards_R: Sequence[float]) -> Scores:
    raws = [None if math.isnan(reward) else reward for reward in rewards_R]
    return Scores([[RewardScore(name="r", raw=raw, weight=1.0)] for raw in raws], np.array(rewards_R, dtype=np.float64))


def step(
    learner: Learner, config: GrpoConfig, rollout: Rollout, rewards_R: Sequence[float]
) -> tuple[Batch, Credit, Update]:
    batch = learner.split(rollout)
    learner.measure_before(batch)
    credit = assign_credit(config, scores_of(rewards_R), batch.tokens)
    return batch, credit, learner.update(0, batch, credit, ~torch.tensor(rewards_R).isnan())


AGGREGATIONS = ["sequence_mean", "token_mean", "constant", "sequence_sum", "group_sum", "group_token_mean"]
RATIOS = ["token", "sequence_mean", "sequence_product"]
REWARDS = [1.0, 0.0, 0.5, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.25, 0.0, 1.0]
IN_REWARD = {"placement": "reward", "estimator": "k1"}
PPO = {"advantage": {"kind": "gae", "lam": 0.9}, "kl": IN_REWARD, "entropy_bonus": 0.01}
DPO = {
    "advantage": {"kind": "best_worst"},
    "surrogate": {"kind": "dpo", "beta": 0.5},
    "kl": {"beta": 0.0},
    "aggregation": "group_sum",
}


@pytest.mark.parametrize("fast", [True, False])
def test_a_value_is_of_the_state_before_its_token(fast: bool) -> None:
    policy = random_policy(dtype=torch.float32, fast=fast)
    policy.add_value_head()
    assert policy.value_head is not None
    torch.nn.init.normal_(policy.value_head.weight)
    prompts, completions = [[5, 6, 7], [5, 6, 7], [9]], [[1, 2, 3], [4], [8, 8]]
    batch = TokenBatch.of(prompts, completions, policy.device)
    values = policy.logprobs(batch, temperature=1.0).value_R_T
    assert values is not None
    for row, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        output = policy.model(torch.tensor([prompt + completion]), output_hidden_states=True)
        states = output.hidden_states[-1][0, len(prompt) - 1 : -1]
        expected = states @ policy.value_head.weight + policy.value_head.bias
        assert torch.allclose(values[row, : len(completion)], expected, atol=1e-5)
        assert (values[row, len(completion) :] == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm",
    [
        *({"entropy_bonus": 0.1, "aggregation": one, "ratio": other} for one, other in product(AGGREGATIONS, RATIOS)),
        PPO,
        DPO | {"updates_per_batch": 1},
    ],
    ids=lambda algorithm: " ".join(map(str, algorithm.values())),
)
def test_no_split_into_micro_batches_changes_loss_or_gradient(algorithm: dict[str, object]) -> None:
    results = []
    for tokens in (16, 40, 8192):
        policy, config = random_policy(), configured({"updates_per_batch": 2} | algorithm, tokens)
        _, _, update = step(Learner(policy, config), config, ragged(), [math.nan, *REWARDS[1:]])
        results.append((update.metrics, gradients(policy)))
    for metrics, gradient in results[1:]:
        assert torch.allclose(gradient, results[0][1], rtol=0, atol=1e-6)
        for name, value in metrics.items():
            assert value == pytest.approx(results[0][0][name], abs=1e-6), name


@pytest.mark.slow
@pytest.mark.thorough
def test_a_critic_learns_what_to_expect() -> None:
    policy = tiny_policy()
    config = configured({"advantage": {"kind": "gae", "lam": 1.0, "value_learning_rate": 0.02}, "kl": {"beta": 0.0}})
    learner, rollout = Learner(policy, config), roll_out(policy, config)
    rewards = [1.0] * 6 + [0.0] * 6
    errors = [step(learner, config, rollout, rewards)[2].metrics["loss/value_avg"] for _ in range(15)]
    lengths = [len(completion.ids) for completion in rollout.completions_R]
    assert errors[0] == pytest.approx(sum(lengths[:6]) / sum(lengths))  # it begins at 0, and these returns are 1
    assert errors[-1] < 0.5 * errors[0]


def test_an_unscored_completion_teaches_the_critic_nothing_and_counts_in_none_of_its_metrics() -> None:
    results = []
    for cut in (1, 12):  # the last completion's length: nothing that is measured of the critic may depend on it
        policy = random_policy(vocabulary=300)
        config = configured(PPO | {"kl": {"beta": 0.0}, "entropy_bonus": 0.0})
        rollout = roll_out(policy, config)
        last = rollout.completions_R[-1]
        last.ids[cut:], last.logprobs[cut:] = [], []
        learner = Learner(policy, config)
        assert policy.value_head is not None
        torch.nn.init.constant_(policy.value_head.weight, 0.1)
        batch, credit, update = step(learner, config, rollout, [*REWARDS[:-1], math.nan])
        metrics = step_metrics(Scored(rollout, scores_of(REWARDS)), None, batch.tokens, credit, update)
        results.append([metrics[name] for name in ("loss", "loss/value_avg", "explained_variance", "grad_norm")])
    assert results[0] == pytest.approx(results[1], abs=1e-6)


def test_dpos_loss_is_of_the_best_and_the_worst_and_a_dead_group_has_none() -> None:
    policy = random_policy(vocabulary=300)
    config = configured(DPO)
    learner, rollout = Learner(policy, config), roll_out(policy, config)
    batch, _, update = step(learner, config, rollout, REWARDS)
    log_ratio = (batch.tokens["logprob"] - batch.tokens["reference_logprob"]).nan_to_num(nan=0.0).double().sum(-1)
    margins = [0.5 * float(log_ratio[best] - log_ratio[worst]) for best, worst in ((0, 1), (11, 8))]
    # three prompts, of which the second is dead
    assert update.metrics["loss"] == pytest.approx(sum(math.log1p(math.exp(-m)) for m in margins) / 3, rel=1e-5)
    assert update.metrics["rewards/margins"] == pytest.approx(sum(margins) / 2, rel=1e-4)


def test_a_penalty_in_the_reward_is_beta_times_the_completions_kl_a_part_of_its_record_and_enlivens_no_group() -> None:
    policy = random_policy(vocabulary=300)
    config = configured({"kl": {"beta": 0.5, **IN_REWARD}})
    rollout = roll_out(policy, config)
    batch, credit, update = step(Learner(policy, config), config, rollout, REWARDS)
    log_ratio = batch.tokens["old_logprob"] - batch.tokens["reference_logprob"]
    penalised = torch.tensor(REWARDS).double() - 0.5 * log_ratio.nan_to_num(nan=0.0).double().sum(-1)
    assert torch.allclose(torch.from_numpy(credit.rewards_P_G).flatten(), penalised, atol=1e-4)
    assert "kl" not in update.metrics  # the loss has no penalty
    reports = group_reports(rollout, scores_of(REWARDS), credit, batch.tokens, beta=0.5)
    for completion in (one for group in reports for one in group.completions):
        assert [one.name for one in completion.rewards] == ["r", "kl_penalty"]
        assert completion.reward == pytest.approx(sum((one.raw or 0.0) * one.weight for one in completion.rewards))
    assert [one.state for one in reports] == ["live", "zero_variance", "live"]
    assert credit.advantages_R_T[4:8].abs().min() > 0  # to stay near the reference is all that it teaches
    metrics = step_metrics(Scored(rollout, scores_of(REWARDS)), None, batch.tokens, credit, update)
    assert metrics["frac_reward_zero_std"] == pytest.approx(1 / 3)


def test_one_place_decides_that_rewards_equal_up_to_rounding_are_a_dead_group() -> None:
    policy = random_policy(vocabulary=300)
    config = configured({"advantage": {"kind": "group_zscore", "eps": 1e-20}, "kl": {"beta": 0.0}})
    rollout = roll_out(policy, config)
    rewards = [0.3, 0.1 + 0.2, 0.3, 0.3, *REWARDS[:4], *[0.1 * 3, 0.3, 0.3, 0.3]]
    batch, credit, update = step(Learner(policy, config), config, rollout, rewards)
    reports = group_reports(rollout, scores_of(rewards), credit, batch.tokens, beta=0.0)
    assert [one.state for one in reports] == ["zero_variance", "live", "zero_variance"]
    assert [one.advantage for one in reports[0].completions] == [0.0] * 4
    metrics = step_metrics(Scored(rollout, scores_of(rewards)), None, batch.tokens, credit, update)
    assert metrics["frac_reward_zero_std"] == pytest.approx(2 / 3)
    assert live_in(config.algorithm.advantage, scores_of(rewards), 4).tolist() == [False, True, False]


def test_a_prompt_drawn_twice_in_a_batch_stays_two_groups() -> None:
    policy = random_policy(vocabulary=300)
    config = configured({"kl": {"beta": 0.0}})
    first, other = items(2)
    rollout = roll_out(policy, config, asked=[first, first, other])
    rewards = [1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, *REWARDS[:4]]
    batch, credit, _ = step(Learner(policy, config), config, rollout, rewards)
    reports = group_reports(rollout, scores_of(rewards), credit, batch.tokens, beta=0.0)
    assert [(one.index, one.prompt_id) for one in reports[:2]] == [(0, first.id), (1, first.id)]
    assert [one.reward_mean for one in reports[:2]] == [0.25, 0.75]
    advantages = [one.completions[0].advantage for one in reports[:2]]
    assert advantages == pytest.approx([0.75 / 0.1875**0.5, 0.25 / 0.1875**0.5]), (
        "compared with its own three siblings, not with the seven others of the same prompt"
    )
    assert [one.ids for one in rollout.completions_R[:4]] != [one.ids for one in rollout.completions_R[4:8]]


def test_a_group_of_one_that_is_scored_is_not_called_unscored() -> None:
    policy = random_policy(vocabulary=300)
    config = configured(PPO, group_size=1)
    rollout, rewards = roll_out(policy, config), [1.0, 0.0, math.nan]
    batch, credit, _ = step(Learner(policy, config), config, rollout, rewards)
    states = [one.state for one in group_reports(rollout, scores_of(rewards), credit, batch.tokens, beta=0.0)]
    assert states == ["zero_variance", "zero_variance", "unscored"]


@pytest.mark.slow
def test_a_synced_reference_stays_until_it_is_copied_again() -> None:
    policy = tiny_policy(reference=False)
    config = configured({"kl": {"reference": "synced", "beta": 0.1}})
    learner, rollout = Learner(policy, config), roll_out(policy, config)
    policy.copy_reference()
    assert step(learner, config, rollout, REWARDS)[2].metrics["kl"] == pytest.approx(0, abs=1e-7)
    moved = step(learner, config, rollout, REWARDS)[2].metrics["kl"]
    assert moved > 1e-6
    policy.copy_reference()
    assert step(learner, config, rollout, REWARDS)[2].metrics["kl"] == pytest.approx(0, abs=1e-7)


def test_renormalized_logprobs_are_over_what_the_sampler_could_draw_however_the_weights_move() -> None:
    policy = tiny_policy()
    config = configured({"logprobs": "renormalized", "updates_per_batch": 2}, top_k=3, temperature=0.7)
    rollout = roll_out(policy, config)
    prompt, completion = rollout.prompt_of(0), rollout.completions_R[0]
    assert all(len(support) >= 3 for support in completion.supports)
    batch = TokenBatch.of([prompt], [completion.ids], policy.device, [completion.supports])
    values = policy.logprobs(batch, temperature=0.7)
    logits = policy.model(torch.tensor([prompt + completion.ids])).logits[0, len(prompt) - 1 : -1] / 0.7
    for position, (token, support) in enumerate(zip(completion.ids, completion.supports, strict=True)):
        among = logits[position, support].log_softmax(-1)[support.index(token)]
        assert float(values.logprob_R_T[0, position]) == pytest.approx(float(among), abs=1e-4)
        assert float(values.logprob_R_T[0, position]) == pytest.approx(completion.logprobs[position], abs=1e-3)
    assert (values.full_logprob_R_T <= values.logprob_R_T + 1e-6).all()
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))  # now other tokens are likeliest
    assert policy.logprobs(batch, temperature=0.7).logprob_R_T.isfinite().all()
    _, _, update = step(Learner(policy, config), config, rollout, REWARDS)
    assert math.isfinite(update.metrics["loss"])
