"""The update."""

import math
from dataclasses import replace

import pytest
import torch
from worker_models import random_policy, roll_out, tiny_policy

from backend.contract.algorithm import Algorithm
from backend.contract.grpo import GrpoConfig
from backend.contract.surrogate import Clip
from backend.contract.training import Optimizer, Sampling, Telemetry
from worker import learner as learner_module
from worker import optimization
from worker.algorithms.advantages import group_statistics
from worker.credit import Credit
from worker.errors import RunFailure
from worker.learner import Learner, Update
from worker.micro_batches import micro_batch_rows, split
from worker.policy.policy import Policy
from worker.rollout.engine import Completion, Rollout
from worker.token_record import TokenRecord

ROWS = 12


def ragged() -> Rollout:
    """Four prompts of different length, with three completions each, one of a single token."""
    generator = torch.Generator().manual_seed(1)

    def ids(count: int) -> list[int]:
        return torch.randint(1, 64, (count,), generator=generator).tolist()

    completions = [
        Completion(ids(1 + (5 * row) % 9), finish_reason="length" if row % 4 == 0 else "stop") for row in range(ROWS)
    ]
    completions = [replace(completion, logprobs=[-1.0] * len(completion.ids)) for completion in completions]
    return Rollout([], [], [ids(count) for count in (3, 9, 1, 5)], 3, completions)


def advantages() -> torch.Tensor:
    return torch.linspace(-1.5, 1.5, ROWS, dtype=torch.float64)


def configured(tokens: int = 8192, **algorithm: object) -> GrpoConfig:
    return GrpoConfig(
        algorithm=Algorithm.model_validate(algorithm),
        sampling=Sampling(max_new_tokens=9),
        optimizer=Optimizer(micro_batch_tokens=tokens, learning_rate=1e-3, max_grad_norm=1e6),
    )


def train(
    learner: Learner,
    rollout: Rollout,
    advantages_R: torch.Tensor,
    trained_R: torch.Tensor | None = None,
    *,
    step: int = 0,
) -> tuple[Update, TokenRecord]:
    """One update on these advantages, as the trainer makes it."""
    batch = learner.split(rollout)
    learner.measure_before(batch)
    rewards_P_G = advantages_R.reshape(-1, rollout.group_size)
    credit = Credit(rewards_P_G, group_statistics(rewards_P_G), advantages_R[:, None], None, None)
    everything = torch.ones(rollout.rows, dtype=torch.bool)
    return learner.update(step, batch, credit, everything if trained_R is None else trained_R), batch.tokens


def gradients(policy: Policy) -> torch.Tensor:
    return torch.cat([parameter.grad.flatten() for parameter in policy.parameters() if parameter.grad is not None])


def test_a_second_update_on_a_batch_moves_the_ratio_and_clips() -> None:
    config = configured(updates_per_batch=4, surrogate=Clip(epsilon_low=0.01, epsilon_high=0.01).model_dump())
    update, _ = train(Learner(random_policy(), config), ragged(), advantages())
    assert update.metrics["clip_ratio/low_mean"] > 0
    assert update.metrics["clip_ratio/high_mean"] > 0


def test_on_policy_the_ratio_is_exactly_1_and_the_loss_the_formula_computed_row_by_row() -> None:
    policy, rollout = random_policy(), ragged()
    update, tokens = train(Learner(policy, configured()), rollout, advantages())
    expected = 0.0
    for row, completion in enumerate(rollout.completions_R):
        length = len(completion.ids)
        surrogate = [-float(advantages()[row])] * length  # the ratio is 1
        expected += (
            sum(s + 0.04 * float(k) for s, k in zip(surrogate, tokens["kl"][row, :length], strict=True)) / length / ROWS
        )
    assert update.metrics["loss"] == pytest.approx(expected, rel=1e-5)
    assert update.metrics["kl"] > 0
    assert update.metrics["ratio_mean"] == 1
    assert update.metrics["clip_ratio/low_mean"] == update.metrics["clip_ratio/high_mean"] == 0
    assert update.metrics["grad_norm"] > 0.01


def test_a_completion_left_out_of_the_loss_moves_nothing() -> None:
    changed, found = ragged(), []
    changed.completions_R[0].ids[0] = 63 - changed.completions_R[0].ids[0]
    trained = torch.ones(ROWS, dtype=torch.bool)
    trained[0] = False
    for rollout in (ragged(), changed):
        policy = random_policy()
        train(Learner(policy, configured()), rollout, advantages(), trained)
        found.append(gradients(policy))
    assert torch.equal(found[0], found[1])


def test_a_gradient_that_is_not_finite_is_not_applied_and_ends_the_run_when_it_stays() -> None:
    policy = random_policy()
    learner = Learner(policy, configured())
    before = [parameter.detach().clone() for parameter in policy.parameters()]
    broken = advantages()
    broken[2] = math.inf
    for step in range(2):
        assert not train(learner, ragged(), broken, step=step)[0].applied
    assert all(torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))
    with pytest.raises(RunFailure, match="3 steps in a row"):
        train(learner, ragged(), broken, step=2)


def test_micro_batches_hold_every_row_once_keep_to_the_budget_and_send_no_float64() -> None:
    rollout = ragged()
    prompts = [rollout.prompt_of(row) for row in range(ROWS)]
    completions = [completion.ids for completion in rollout.completions_R]
    for packed in (True, False):
        parts = micro_batch_rows(range(ROWS), prompts, completions, 30, packed=packed)
        assert [row for part in parts for row in part] == list(range(ROWS))
        for part in parts:
            different = {tuple(prompts[row]) for row in part}
            real = sum(map(len, different)) + sum(len(completions[row]) for row in part)
            padded = len(part) * max(len(prompts[row]) + len(completions[row]) for row in part)
            assert len(part) == 1 or (real if packed else padded) <= 30
    micro = split(rollout, random_policy(), budget=30).micro_batches[0]
    assert micro.of(torch.ones(ROWS, 50, dtype=torch.float64)).dtype == torch.float32, "not every device has float64"


@pytest.mark.parametrize(("schedule", "expected"), [("constant", [0.5, 1, 1, 1]), ("linear", [0.5, 1, 0.75, 0.25])])
def test_the_learning_rate_warms_up_and_falls(schedule: str, expected: list[float]) -> None:
    optimizer = Optimizer.model_validate({"learning_rate": 1.0, "schedule": schedule, "warmup_steps": 2})
    assert [optimizer.rate_at(step, steps=6) for step in (0, 2, 3, 5)] == pytest.approx(expected)


@pytest.mark.slow
def test_gradient_checkpointing_changes_memory_not_the_gradient() -> None:
    found = []
    for checkpointing in (False, True):
        config = GrpoConfig.model_validate(
            {"model": {"gradient_checkpointing": checkpointing}, "sampling": {"prompts_per_step": 2, "group_size": 4}}
        )
        policy = tiny_policy(config.model)
        train(Learner(policy, config), roll_out(policy, config), torch.tensor([1.0, -1.0]).repeat(4))
        assert policy.packs
        found.append(gradients(policy))
    assert torch.allclose(found[0], found[1], atol=1e-6)


def test_leaving_dead_groups_out_changes_no_gradient_and_nothing_is_known_of_their_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = configured(kl={"beta": 0.0})
    dead = advantages()
    dead[: ROWS // 2] = 0.0
    found = []
    for left_out in (True, False):
        policy = random_policy()
        learner = Learner(policy, config)
        if not left_out:
            monkeypatch.setattr(learner, "nothing_to_learn", lambda credit: set())
        update, tokens = train(learner, ragged(), dead)
        found.append(gradients(policy))
        assert tokens.known("ratio").tolist() == [not left_out or row >= ROWS // 2 for row in range(ROWS)]
        assert update.applied
    assert torch.allclose(*found, rtol=0, atol=1e-9)


@pytest.mark.parametrize("algorithm", [{"kl": {"beta": 0.04}}, {"kl": {"beta": 0.0}, "entropy_bonus": 0.1}])
def test_dead_groups_pass_where_a_penalty_or_a_bonus_has_a_gradient_there(algorithm: dict[str, object]) -> None:
    _, tokens = train(Learner(random_policy(), configured(**algorithm)), ragged(), torch.zeros(ROWS).double())
    assert tokens.known("ratio").all()


@pytest.mark.parametrize(
    ("where", "call"),
    [
        (torch.Tensor, "backward"),
        (learner_module, "split"),
        (Policy, "reference_logprobs"),
        (Learner, "_measure_logprobs"),
    ],
    ids=["in the update", "split", "reference", "after the update"],
)
def test_memory_that_runs_out_is_looked_for_at_the_sampler_and_the_update_is_the_same(
    where: object, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, failing, work = list[str](), list[bool](), getattr(where, call)

    def out_of_memory_once(*given: object, **named: object) -> object:
        if failing:
            failing.pop()
            raise torch.OutOfMemoryError("CUDA out of memory")
        return work(*given, **named)

    monkeypatch.setattr(where, call, out_of_memory_once)
    config = configured().model_copy(update={"telemetry": Telemetry(logprob_after_update=True)})
    untouched, short = random_policy(), random_policy()
    expected, _ = train(Learner(untouched, config), ragged(), advantages())
    failing.append(True)
    learner = Learner(short, config, make_room=lambda: asked.append("slots") is None)
    found, tokens = train(learner, ragged(), advantages())
    assert (asked, found.metrics) == (["slots"], expected.metrics)
    assert all(map(torch.equal, short.parameters(), untouched.parameters()))
    assert tokens.known("logprob_after").all()
    failing.append(True)
    with pytest.raises(torch.OutOfMemoryError):
        train(Learner(random_policy(), config), ragged(), advantages())


def test_the_first_step_of_the_optimizer_takes_the_samplers_memory_where_its_moments_would_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = list[str]()
    learner = Learner(random_policy(), configured(), lambda: asked.append("slots") is None)
    monkeypatch.setattr(optimization, "free_bytes", lambda device: 1000)
    for step in range(2):
        train(learner, ragged(), advantages(), step=step)
    assert asked == ["slots"]
