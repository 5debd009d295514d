"""Probes: a group for each of a few held-out prompts, always the same, so that a prompt can be followed through training and runs."""

from collections.abc import Callable, Sequence

from backend.contract.groups import GroupReport
from backend.contract.grpo import GrpoConfig
from worker.group_records import sampled_reports
from worker.policy.policy import Policy
from worker.rewards.scoring import RewardScorer
from worker.rollout.draws import Draws
from worker.rollout.engine import Engine, Request
from worker.rollout.rollout import Rollout
from worker.scored import Scored, group_samples
from worker.tasks.items import Item, Items


def probe_items(items: Items, config: GrpoConfig, step: int) -> Sequence[Item]:
    """The prompts to probe before the update of `step`: at regular steps and before the last one; else none."""
    telemetry = config.telemetry
    due = step % telemetry.probe_every == 0 or step == config.budget.steps - 1
    return (items.held_out or items.train)[: telemetry.probe_prompts] if due else []


def sample_probes(
    policy: Policy,
    engine: Engine,
    items: Sequence[Item],
    scorer: RewardScorer,
    config: GrpoConfig,
    on_progress: Callable[[int], None],
) -> list[GroupReport]:
    """A scored group for each item, never trained on: no advantages.

    The draws do not depend on the step, so that two probes of one prompt differ by the policy alone. `on_progress` gets the
    finished completions and may raise.
    """
    size = config.sampling.group_size
    prompts = [policy.encode(item) for item in items]
    with scorer.begin(size * len(items)) as scoring:

        def sampled(done: int) -> None:
            scoring.check()
            on_progress(done)

        completions = engine.sample(
            Request(
                [ids for _, ids in prompts],
                group_size=size,
                decoding=config.sampling,
                draws=Draws(config.budget.seed, "probe"),
            ),
            on_progress=sampled,
            on_group=lambda p, group: scoring.add(p * size, group_samples(items[p], group)),
        )
        scores = scoring.finish(lambda _: on_progress(len(completions)))
    rollout = Rollout(items, [text for text, _ in prompts], [ids for _, ids in prompts], size, completions)
    reports = sampled_reports(rollout, scores, Scored(rollout, scores).rewards_P_G, None)
    return [report.model_copy(update={"state": "probe"}) for report in reports]
