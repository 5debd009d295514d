"""A replay of a step is the step: tokens, advantages and loss; and what it says of the groups adds up to what the step did."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import torch
from witness import Witness, configured, train

from backend.contract.advantage import GroupCenter
from backend.contract.algorithm import Algorithm
from backend.contract.groups import GroupReport
from backend.contract.grpo import GrpoConfig
from backend.contract.model import Model
from backend.contract.protocol import Report
from backend.contract.records import Progress
from backend.contract.replay import ReplayConfig, Replayed
from backend.contract.surrogate import Clip
from worker import group_step
from worker.credit import Credit, assign_credit
from worker.groups import PhaseClock
from worker.policy.loading import load_policy
from worker.policy.sources import TINY_ARITHMETIC, resolve
from worker.replay.gradients import Agreement
from worker.replay.records import NotTheSame, StepRecord
from worker.replay.replay import Replay, Replayable
from worker.replay.run import run_replay
from worker.replay.step_update import norm_of
from worker.reporter import Channels, Place
from worker.rewards.scoring import Scores
from worker.rollout.sampler import NativeEngine
from worker.store import Store
from worker.tasks.loading import load_items
from worker.token_record import TokenRecord

pytestmark = pytest.mark.slow


def trained(
    folder: Path, *, steps: int = 1, every: int = 0, seed: int = 0, **changes: object
) -> tuple[GrpoConfig, Witness]:
    """A run that recorded its steps, and its checkpoints."""
    witness = Witness()
    config = configured(**changes, budget={"steps": steps, "checkpoint_every": every, "eval_every": 0, "seed": seed})
    train(config, folder, witness)
    return config, witness


def replayable(config: GrpoConfig, folder: Path, witness: Witness, checkpoint: int | None) -> Replayable:
    """That run, from one of its checkpoints, or from its beginning."""
    saved = {one.step: folder / one.path for one in witness.checkpoints}
    start = None if checkpoint is None else saved[checkpoint]
    source = resolve(TINY_ARITHMETIC, converted=folder, root=None, checkpoint=None)
    weights, seed = start / "model" if start else None, config.budget.seed
    policy = load_policy(config.model, source, torch.device("cpu"), reference=True, resume=weights, seed=seed)
    items, steps = load_items(config.task, fetch_upload=lambda _: b""), witness.steps

    def record(step: int) -> StepRecord:
        return StepRecord(step, steps[step].groups, steps[step].metrics)

    return Replayable(1, config, policy, NativeEngine(policy), items, start, record)


def replay_of(config: GrpoConfig, folder: Path, witness: Witness, checkpoint: int | None) -> Replay:
    """A replay of it."""
    return Replay(replayable(config, folder, witness, checkpoint))


def explained(replay: Replay, step: int, **asked: Any) -> tuple[Replayed, list[GroupReport]]:
    for before in range(replay.from_step, step):
        replay.repeat(before)
    content = replay.explain(step, **asked)
    assert content.replayed is not None
    return content.replayed, content.groups


def first_step(folder: Path, *, asked: dict[str, Any] | None = None, **changes: object) -> Replayed:
    """What a replay says of the first step of such a run."""
    config, witness = trained(folder, **changes)  # type: ignore[arg-type]
    return explained(replay_of(config, folder, witness, None), 0, **asked or {})[0]


FROM_OLD = {"beta": 0.1, "reference": "old"}
CLIPPED = {"kind": "clip", "epsilon_low": 0.02, "epsilon_high": 0.02}
SCALED_DOWN = {"learning_rate": 1e-3, "max_grad_norm": 0.01, "weight_decay": 0.1}
SEVERAL_PASSES = {"algorithm": {"updates_per_batch": 3, "surrogate": CLIPPED}, "optimizer": SCALED_DOWN}
PAIRS = {"surrogate": {"kind": "dpo"}, "advantage": {"kind": "best_worst"}, "aggregation": "group_sum"}


@pytest.mark.parametrize(
    ("checkpoint", "variant"),
    [
        pytest.param(1, {}, id="from a checkpoint"),
        pytest.param(None, SEVERAL_PASSES, id="from the beginning, three passes, clipped, scaled down, weight decay"),
        *(
            pytest.param(1, variant, id=name, marks=pytest.mark.thorough)
            for name, variant in {
                "adapters, two passes, and the KL from the old policy": {
                    "model": {"lora": {"rank": 4, "alpha": 8}},
                    "algorithm": {"updates_per_batch": 2, "kl": FROM_OLD, "ratio": "sequence_mean"},
                },
                "dynamic sampling": {
                    "algorithm": {"dead_groups": "resample", "kl": {"beta": 0}},
                    "sampling": {"prompts_per_step": 3, "group_size": 2},
                },
                "a critic, and the KL in the reward": {
                    "algorithm": {"advantage": {"kind": "gae"}, "kl": {"placement": "reward", "estimator": "k1"}}
                },
                "pairs within groups": {"algorithm": PAIRS},
            }.items()
        ),
    ],
)
def test_a_replay_equals_its_step_and_the_groups_gradients_add_up(
    tmp_path: Path, checkpoint: int | None, variant: dict[str, object]
) -> None:
    config, witness = trained(tmp_path, steps=3, every=1, **variant)  # type: ignore[arg-type]
    replay = replay_of(config, tmp_path, witness, checkpoint)
    found, groups = explained(replay, 2)  # raises unless advantages, log-probs and loss are the recorded ones
    recorded = [group for group in witness.steps[2].groups if group.state != "filtered"]
    assert [[one.text for one in group.completions] for group in groups] == [
        [one.text for one in group.completions] for group in recorded
    ]
    assert found.apart is not None
    assert found.apart < 1e-5
    assert sum(part.share for part in found.groups) + found.momentum + found.decay == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("updates", [1, pytest.param(3, marks=pytest.mark.thorough)])
def test_a_group_whose_learning_signal_is_twenty_times_that_of_the_others_comes_first_and_a_dead_one_did_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, updates: int
) -> None:
    def planted(config: GrpoConfig, scores: Scores, tokens: TokenRecord) -> Credit:
        credit = assign_credit(config, scores, tokens)
        advantages_P_G = credit.advantages_R_T.view(-1, config.sampling.group_size).clone()
        advantages_P_G[2] *= 20
        advantages_P_G[5] = 0
        return replace(credit, advantages_R_T=advantages_P_G.view(-1, 1))

    monkeypatch.setattr(group_step, "assign_credit", planted)
    sampling = {"prompts_per_step": 8, "group_size": 4}
    algorithm = {"kl": {"beta": 0}, "dead_groups": "keep", "updates_per_batch": updates}
    config, witness = trained(tmp_path, steps=2, every=1, sampling=sampling, algorithm=algorithm)
    found, _ = explained(replay_of(config, tmp_path, witness, 1), 1)
    assert found.compared[0] == 2
    assert (found.groups[5].share, found.groups[5].norm) == (0, 0)


def test_at_the_first_step_no_pass_has_momentum_of_earlier_ones(tmp_path: Path) -> None:
    found = first_step(tmp_path, algorithm={"updates_per_batch": 3})
    assert abs(found.momentum) < 1e-4
    assert sum(part.share for part in found.groups) + found.decay == pytest.approx(1, abs=1e-4)


def test_a_step_that_had_nothing_to_teach_moved_no_weight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dead(config: GrpoConfig, scores: Scores, tokens: TokenRecord) -> Credit:
        credit = assign_credit(config, scores, tokens)
        return replace(credit, advantages_R_T=torch.zeros_like(credit.advantages_R_T))

    monkeypatch.setattr(group_step, "assign_credit", dead)
    found = first_step(tmp_path, algorithm={"kl": {"beta": 0}, "dead_groups": "keep", "updates_per_batch": 2})
    assert (found.update_norm, found.momentum, found.decay, found.apart) == (0, 0, 0, 0)
    assert {(part.share, part.norm) for part in found.groups} == {(0, 0)}


@pytest.mark.parametrize(("updates", "same"), [(1, True), (3, False)])
@pytest.mark.thorough
def test_another_clip_range_makes_another_update_of_several_passes_and_not_of_one(
    tmp_path: Path, updates: int, *, same: bool
) -> None:
    algorithm: dict[str, Any] = {"updates_per_batch": updates, "kl": {"beta": 0}}
    narrow = Algorithm.model_validate(algorithm | {"surrogate": Clip(epsilon_low=1e-3, epsilon_high=1e-3)})
    asked, slow = {"other": narrow}, {"learning_rate": 1e-4}
    found = first_step(tmp_path, asked=asked, algorithm=algorithm, optimizer=slow)
    assert found.other is not None
    assert found.other.cosine is not None
    assert (found.other.cosine > 1 - 1e-5) is same


@pytest.mark.thorough
@pytest.mark.parametrize("updates", [1, 3])
def test_completions_and_tokens_add_up_to_their_group_and_the_runs_own_algorithm_would_have_made_the_same_update(
    tmp_path: Path, updates: int
) -> None:
    algorithm, telemetry = {"updates_per_batch": updates}, {"probe_prompts": 2}
    config, witness = trained(tmp_path, steps=2, every=1, algorithm=algorithm, telemetry=telemetry)
    live = next(group.index for group in witness.steps[1].groups if group.state == "live")
    replay = replay_of(config, tmp_path, witness, 1)
    found, groups = explained(replay, 1, group=live, other=config.algorithm)
    assert found.detail is not None
    assert found.other is not None
    whole, parts = found.groups[live].share, found.detail.completions
    assert sum(part.share for part in parts) == pytest.approx(whole, rel=1e-3)
    for part, tokens, one in zip(parts, found.detail.tokens, groups[live].completions, strict=True):
        assert len(tokens) == one.token_count
        assert sum(tokens) == pytest.approx(part.share, rel=1e-3, abs=1e-7)
    assert found.other.cosine == pytest.approx(1, abs=1e-5)
    assert found.other.update_norm == pytest.approx(found.update_norm, rel=1e-5)
    probes = [group for group in groups if group.state == "probe"]
    for group, changes in zip(probes, found.other.probes, strict=True):
        for one, change in zip(group.completions, changes, strict=True):
            assert one.logprob_sum is not None
            assert one.logprob_sum_after is not None
            assert change == pytest.approx(one.logprob_sum_after - one.logprob_sum, abs=1e-5)


@pytest.mark.parametrize("step", [pytest.param(0, marks=pytest.mark.thorough), 1])
def test_another_algorithm_starts_from_the_weights_and_moments_that_the_step_found(tmp_path: Path, step: int) -> None:
    ours, witness = trained(tmp_path, steps=2, every=1, seed=3)
    other = ours.algorithm.model_copy(update={"advantage": GroupCenter()})
    theirs = ours.model_copy(update={"algorithm": other})
    start = step or None
    found, _ = explained(replay_of(ours, tmp_path, witness, start), step, other=other)
    # the other algorithm's own run, from the same checkpoint: its records are those of ours, but for what follows from its estimator
    replay = replay_of(theirs, tmp_path, witness, start)
    before = [one.detach().clone() for one in replay._policy.parameters()]
    _, drawn = replay._draw(step, lambda *_: None)
    replay._step.update(step, drawn, PhaseClock(), lambda *_: None)
    moved = [one.detach() - held for one, held in zip(replay._policy.parameters(), before, strict=True)]
    assert found.other is not None
    assert found.other.update_norm == pytest.approx(norm_of(moved), rel=1e-5)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"text": "another"}, r"Step 0 .* other completions are recorded of it"),
        ({"advantage": 0.25}, "advantage"),
        ({"logprob_sum": -1.0}, "logprob_sum"),
    ],
)
def test_a_replay_that_is_not_the_step_to_the_last_bit_ends_with_what_differs(
    tmp_path: Path, change: dict[str, object], says: str
) -> None:
    config, original = trained(tmp_path)
    witness, report = Witness(), original.steps[0]
    first, *others = report.groups
    one, *rest = first.completions
    changed = first.model_copy(update={"completions": [one.model_copy(update=change), *rest]})
    witness.messages = [("report", report.model_copy(update={"groups": [changed, *others]}))]
    with pytest.raises(NotTheSame, match=says):
        replay_of(config, tmp_path, witness, None).explain(0)
    with pytest.raises(NotTheSame, match=says):
        replay_of(config, tmp_path, witness, None).repeat(0)


def test_a_step_far_after_its_checkpoint_says_meanwhile_how_far_it_is(tmp_path: Path) -> None:
    config, original = trained(tmp_path, steps=3, every=1)
    asked = ReplayConfig(
        model=Model(source="run:1@1"), origin=None, run=1, step=2, checkpoint=1, device="CPU", versions={}, group=0
    )
    shown: list[Progress] = []
    witness = Witness()
    channels = Channels(witness.send, shown.append, lambda: "nothing", lambda: None, lambda: False)
    place = Place(2, 1, Store(tmp_path), "store", None, "CPU", {})
    assert run_replay(asked, replayable(config, tmp_path, original, 1), place, channels) == "finished"
    again = ["rollout", "reference", "update"]
    phases = {step: [phase for phase, _ in groupby(one.phase for one in shown if one.step == step)] for step in (1, 2)}
    assert phases == {1: again, 2: [*again, "gradients"]}
    assert {one.total_steps for one in shown} == {3}
    for step in (1, 2):
        done = [one.done for one in shown if (one.step, one.phase) == (step, "rollout")]
        assert done == sorted(done)
        assert (done[0], done[-1]) == (0, 12)
    reports = [one for _, one in witness.messages if isinstance(one, Report) and one.step is not None]
    assert [one.step for one in reports] == [1, 2]
    assert [one.replayed is not None for one in reports] == [False, True]


def cosine(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> float:
    a, b = (torch.cat([part.flatten() for part in vector]).double() for vector in (one, other))
    return float(a @ b / a.norm() / b.norm())


def test_projected_gradients_have_the_cosines_of_whole_ones_within_the_error_that_is_said() -> None:
    generator = torch.Generator().manual_seed(0)
    common = torch.randn(20_000, generator=generator)
    vectors = [[(common * weight + torch.randn(20_000, generator=generator)).view(100, -1)] for weight in (0, 1, 3, 9)]
    whole, projected = (Agreement(4, vectors[0], torch.device("cpu"), whole_bytes=room) for room in (2**24, 2**17))
    for place, vector in enumerate(vectors):
        for one in (whole, projected):
            one.put(place, vector, float(vector[0].norm()))
    error = projected.error(range(4))
    assert (whole.projected, whole.error(range(4))) == (None, None)
    assert projected.projected == 2**12
    assert error is not None
    assert error < 0.03
    for one in range(4):
        for other in range(4):
            exact = cosine(vectors[one], vectors[other])
            assert whole.cosines(range(4))[one][other] == pytest.approx(exact, abs=1e-5)
            assert abs(projected.cosines(range(4))[one][other] - exact) < 4 * error
