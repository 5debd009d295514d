"""Each rule fires on a run that is sick in its way, with evidence; and none on one that goes well."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
import recorded
from acting import GRPO, Actor
from serving import Backend

from backend.contract import protocol as p
from backend.contract.base import Json
from backend.contract.client import Client
from backend.contract.health import Health, Hint
from backend.contract.records import Progress
from backend.health.check import RULES

Metrics = Callable[[int], dict[str, float | None]]
HEALTHY: dict[str, float | None] = {
    "reward": 0.6,
    "reward_std": 0.4,
    "frac_reward_zero_std": 0.1,
    "frac_unscored": 0.0,
    "rewards/correctness/mean": 0.6,
    "rewards/correctness/std": 0.45,
    "rewards/format/mean": 0.9,
    "rewards/format/std": 0.2,
    "completions/mean_length": 24.0,
    "completions/clipped_ratio": 0.02,
    "kl": 0.01,
    "entropy": 0.4,
    "loss": 0.2,
    "grad_norm": 0.4,
    "learning_rate": 5e-5,
    "sampling_logprob_diff": 2e-6,
    "step_time": 1.6,
    "time/rollout": 1.0,
    "time/reward": 0.1,
    "time/update": 0.5,
}
LIVE, WRONG, RIGHT = (1.0, 0.1), (0.1, 0.1), (1.0, 1.0)


def record(
    client: Client,
    steps: int,
    unusual: Metrics = lambda step: {},
    paid: Sequence[Sequence[float | None]] = (LIVE,),
    worker: p.WorkerInfo = recorded.WORKER,
    **config: Json,
) -> tuple[int, p.Claim]:
    """A run under way whose steps went well but for what is `unusual`; `paid` are the rewards of each step's groups."""
    run_id, claim = recorded.started(client, "sick", **config, worker=worker)
    for step in range(steps):
        groups = [recorded.group_of(index, one) for index, one in enumerate(paid)]
        metrics = HEALTHY | unusual(step)
        client.report(run_id, p.Report(attempt=claim.attempt, seq=step, step=step, metrics=metrics, groups=groups))
    return run_id, claim


def beat(client: Client, run_id: int, claim: p.Claim, step: int, phase: str) -> None:
    progress = Progress(step=step, total_steps=100, phase=phase, done=1, total=8)
    client.heartbeat(run_id, p.Heartbeat(attempt=claim.attempt, worker=recorded.WORKER.name, progress=progress))


def only_warning(health: Health) -> Hint:
    assert [hint.code for hint in health.warnings] == [health.items[0].code]
    return health.items[0]


@dataclass(frozen=True)
class Sickness:
    """What is unusual in 30 steps, and the hint that must say so."""

    code: str
    unusual: Metrics
    says: str
    shows: Sequence[str] = ()  # what was unusual at the end, unless it says what else
    steps: tuple[int, int] = (20, 29)  # of the evidence
    opens: int | None = 29  # the step whose groups are shown
    level: str = "warning"
    state: str | None = None
    finish_reason: str | None = None
    paid: Sequence[Sequence[float | None]] = (LIVE,)
    config: dict[str, Json] = field(default_factory=dict)


LORA: dict[str, Json] = {"model": {"lora": {"rank": 8, "alpha": 16}}, "optimizer": {"learning_rate": 1e-5}}
SICKNESSES = [
    Sickness(
        "all_rewards_zero",
        lambda step: {"reward": 0.0, "reward_std": 0.0, "frac_reward_zero_std": 1.0} if step > 22 else {},
        "0 for every scored completion of steps 23 to 29",
        ["reward", "reward_std"],
        steps=(23, 29),
        state="zero_variance",
        paid=((0.0, 0.0),),
    ),
    Sickness(
        "dead_groups",
        lambda step: {"frac_reward_zero_std": 0.75 if step == 24 else 0.5},
        "52 % of the groups of steps 20 to 29 were dead: in 10 every completion was right, in 10 none got the highest "
        "reward (all equal, at 0.1)",
        opens=24,
        state="zero_variance",
        paid=(LIVE, LIVE, WRONG, RIGHT),
    ),
    Sickness(
        "dead_groups",
        lambda step: {"frac_reward_zero_std": 0.8, "reward": 0.95},
        "every completion was right in all 20 of them",
        level="note",
        state="zero_variance",
        paid=(LIVE, RIGHT, RIGHT),
    ),
    Sickness(
        "truncation",
        lambda step: {"completions/clipped_ratio": 0.3 + step / 1000},
        "32 % of the completions of steps 20 to 29 were cut at 48 tokens",
        finish_reason="length",
    ),
    Sickness(
        "entropy_collapse",
        lambda step: {"entropy": 0.4 if step < 12 else 0.02},
        "from 0.4 nats per token at the start to 0.02 over steps 20 to 29, 5 % of it, at a reward of 0.6",
        steps=(0, 29),
    ),
    Sickness(
        "kl_blow_up", lambda step: {"kl": 0.1 * step}, "2.45 nats per token (median of steps 20 to 29), with β = 0.04"
    ),
    Sickness(
        "length_drift",
        lambda step: {"completions/mean_length": 20.0 + 2 * step},
        "from 29 tokens in the first 10 steps to 69 over steps 20 to 29 (2.38 times)",
        ["completions/mean_length", "reward"],
        steps=(0, 29),
    ),
    Sickness(
        "component_dominates",
        lambda step: {"rewards/correctness/mean": 0.1, "rewards/correctness/std": 0.001},
        "100 % of the reward's variance came from format, which has 10 % of the weight. Mean scores of the others: "
        "correctness 0.1.",
        ["rewards/format/std", "rewards/correctness/std"],
    ),
    Sickness(
        "component_at_zero",
        lambda step: {"rewards/correctness/mean": 0.0, "rewards/correctness/std": 0.0},
        "in all 30 steps. In step 29 an answer was found in 1 of 1 completions (<answer> </answer>), such as “0”. The reference is “0”.",
        ["rewards/correctness/mean", "reward"],
        steps=(0, 29),
    ),
    Sickness(
        "gradient_explodes",
        lambda step: {"grad_norm": 50.0 + step if step in (21, 25, 28) else 0.4},
        "In 3 of the last 10 steps the gradient norm was above 4, up to 78; the median of the 20 steps before is 0.4",
        opens=28,
    ),
    Sickness(
        "gradient_clipped",
        lambda step: {"grad_norm": 3.0 if step else 0.2},
        "In 20 of the 20 steps 10 to 29 the gradient was longer than max_grad_norm = 1",
        steps=(10, 29),
        level="note",
    ),
    Sickness(
        "lora_rate",
        lambda step: {},
        "LoRA of rank 8 is trained at 1e-5; the reward went from 0.6 to 0.6",
        ["reward"],
        config=LORA,
    ),
    Sickness(
        "sampling_mismatch",
        lambda step: {"sampling_logprob_diff": 0.12},
        "(native engine) and of training differed by 0.12 nats per token",
    ),
    Sickness(
        "unscored",
        lambda step: {"frac_unscored": 0.1 if step == 22 else 0.0},
        "1 % of the completions of steps 20 to 29 could not be scored, with a peak of 10 % at step 22; above 20 %",
        opens=22,
        state="unscored",
        paid=(LIVE, (None, 1.0)),
    ),
    Sickness(
        "skipped_updates",
        lambda step: {"grad_norm": None} if step in (14, 17) else {},
        "In 2 of the last 30 steps the gradient was not finite (NaN or infinite), and the update was not applied: 14, 17",
        ["grad_norm"],
        steps=(14, 17),
        opens=17,
    ),
    Sickness(
        "not_finite",
        lambda step: {"entropy": None} if step in (14, 17) else {},
        "entropy was NaN or infinite in 2 of the last 30 steps: 14, 17.",
        ["entropy"],
        steps=(14, 17),
        opens=14,
    ),
    Sickness(
        "loss_near_zero",
        lambda step: {"loss": 0.001, "kl": 0.02},
        "the loss stayed below 0.01 in size, while the median gradient norm was 0.4, against 0.4 in the first 10 steps.",
        ["loss", "grad_norm"],
        opens=None,
        level="note",
    ),
    Sickness(
        "truth_falls",
        lambda step: {
            "reward": 0.4 + step / 100 + step % 3 / 1000,
            "rewards/correctness/mean": 0.8 - step / 100 - step % 2 / 1000,
        },
        "The mean reward went from 0.446 (steps 0 to 9) to 0.646 (steps 20 to 29), while the mean score of correctness fell from 0.755 "
        "(step 9) to 0.554",
        steps=(9, 29),
    ),
    Sickness(
        "near_ties",
        lambda step: {},
        "In 10 of the 30 live groups of steps 20 to 29 the rewards lay close together: their std was 0.0005 in the median, and 0.45 is "
        "usual",
        ["reward_std", "reward"],
        state="live",
        paid=(LIVE, LIVE, (0.5, 0.501)),
    ),
    Sickness(
        "flat_reward",
        lambda step: {"reward": 0.6 + (7 * step % 5 - 2) / 100},
        "Likeliest cause: none that the metrics show",
        ["reward", "reward_std"],
        steps=(0, 29),
        opens=None,
        level="note",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("sick", SICKNESSES, ids=lambda sick: f"{sick.code}-{sick.level}")
def test_a_sick_run_has_one_hint_with_its_rule_its_numbers_and_where_to_look(
    shared_backend: Backend, sick: Sickness
) -> None:
    client = shared_backend.client
    run_id, _ = record(client, 30, sick.unusual, sick.paid, recorded.WORKER, **sick.config)
    [hint] = client.health(run_id).items
    assert (hint.code, hint.level) == (sick.code, sick.level)
    assert sick.says in hint.measured
    assert all((hint.title, hint.rule, hint.advice, hint.numbers))
    seen = hint.evidence
    assert seen is not None
    assert (seen.from_step, seen.to_step, seen.step) == (*sick.steps, sick.opens)
    assert (seen.state, seen.finish_reason) == (sick.state, sick.finish_reason)
    assert set(sick.shows or sick.unusual(29)) <= set(seen.metrics) <= set(client.metrics(run_id).series)
    assert sick.opens is None or client.groups(run_id, step=sick.opens, state=seen.state).items


def test_a_phase_that_does_not_end_is_told_while_its_worker_lives_and_one_of_the_step_before_is_not_open(
    backend: Backend,
) -> None:
    run_id, claim = record(backend.client, 6)
    for _ in range(3):  # a worker that serves samples between two steps goes on telling of the step that is over
        beat(backend.client, run_id, claim, 5, "update")
        backend.clock.now += 25
    beat(backend.client, run_id, claim, 6, "update")
    assert backend.client.health(run_id).items == []
    beat(backend.client, run_id, claim, 6, "reward")
    for waited, told in ((29, False), (2, True)):
        backend.clock.now += waited
        beat(backend.client, run_id, claim, 6, "reward")
        assert [hint.code for hint in backend.client.health(run_id).items] == (["phase_open"] if told else [])
    hint = only_warning(backend.client.health(run_id))
    assert hint.title == "The phase reward is stuck"
    assert "Step 6 has been in the phase reward for 31 s, 310 times its median of 0.1 s" in hint.measured
    assert hint.evidence is not None
    assert hint.evidence.metrics == ["time/reward"]


def test_a_silent_worker_is_told_and_a_lost_one_remembered(backend: Backend) -> None:
    run_id, _ = record(backend.client, 6)
    backend.clock.now += 14
    assert backend.client.health(run_id).items == []
    backend.clock.now += 2
    hint = only_warning(backend.client.health(run_id))
    assert (hint.code, hint.title) == ("worker_silent", "The worker is silent")
    assert "for 16 s; its lease is 30 s" in hint.measured
    backend.clock.now += 20
    assert only_warning(backend.client.health(run_id)).title == "The worker is gone"

    again = Actor(backend.client, "again").begin(4)
    hint = only_warning(backend.client.health(run_id))
    assert (hint.code, hint.numbers) == ("worker_lost", {"lost_attempts": 1})
    again.finish()
    assert [(one.code, one.level) for one in backend.client.health(run_id).items] == [("worker_lost", "note")]


@pytest.mark.slow
def test_a_run_that_goes_well_has_no_warning_and_every_rule_was_looked_at(backend: Backend) -> None:
    run_id = recorded.queue(backend.client, "well")
    claim = recorded.train(backend.client, run_id, steps=30, total=400, prompts=4)
    health = backend.client.health(run_id)
    assert health.warnings == []
    assert [rule.code for rule in health.checked if rule.missing is None] == [rule.code for rule in RULES]
    recorded.finish(backend.client, run_id, claim)
    assert backend.client.health(run_id).warnings == []


def test_what_a_rule_waits_for_is_said_of_a_run_without_steps_and_of_one_that_does_not_log_it(backend: Backend) -> None:
    run_id = backend.client.create_run(GRPO).id
    health = backend.client.health(run_id)
    assert health.items == []
    missing = {rule.code: rule.missing for rule in health.checked}
    assert list(missing) == [rule.code for rule in RULES]
    assert (missing["dead_groups"], missing["worker_silent"]) == ("needs 5 steps", None)
    actor = Actor(backend.client).begin()
    for step in range(6):
        actor.report(step, metrics={"reward": 0.5}, groups=[])
    missing = {rule.code: rule.missing for rule in backend.client.health(run_id).checked}
    assert (missing["kl_blow_up"], missing["entropy_collapse"]) == ("kl not logged", "needs 20 steps")


def test_a_correctness_that_is_only_measured_is_read(backend: Backend) -> None:
    own: Json = {"kind": "python", "name": "right", "function": "own:reward"}
    measured: Json = {"kind": "correctness", "name": "correctness", "weight": 0.0}
    solved = {"frac_reward_zero_std": 0.9, "reward": 1.0, "rewards/correctness/mean": 1.0}
    worker = recorded.WORKER.model_copy(update={"reward_functions": ["own:reward"]})
    rewards: Json = {"functions": [own, measured]}
    run_id, _ = record(backend.client, 6, lambda step: {**solved}, paid=(), worker=worker, rewards=rewards)
    (dead,) = (hint for hint in backend.client.health(run_id).items if hint.code == "dead_groups")
    assert (dead.level, dead.title) == ("note", "Most groups are solved")


@pytest.mark.slow
def test_a_resumed_run_is_judged_by_its_live_steps_alone(backend: Backend) -> None:
    run_id, _ = record(backend.client, 30, lambda step: {"completions/clipped_ratio": 0.9 if step >= 10 else 0.0})
    assert only_warning(backend.client.health(run_id)).code == "truncation"
    backend.clock.now += 60
    Actor(backend.client, "again").begin(10)
    assert "truncation" not in [hint.code for hint in backend.client.health(run_id).items]
