"""Probes: a group for each of a few held-out prompts, always the same, so that a prompt can be followed through training and runs."""

from collections.abc import Sequence

from backend.contract.groups import GroupReport
from backend.contract.grpo import GrpoConfig
from worker.group_records import sampled_reports
from worker.groups import GroupSampler, OnProgress
from worker.rollout.draws import Draws
from worker.tasks.items import Item, Items


def probe_items(items: Items, config: GrpoConfig, step: int) -> Sequence[Item]:
    """The prompts to probe before the update of `step`: at regular steps and before the last one; else none."""
    telemetry = config.telemetry
    due = step % telemetry.probe_every == 0 or step == config.budget.steps - 1
    return (items.held_out or items.train)[: telemetry.probe_prompts] if due else []


def sample_probes(
    sampler: GroupSampler, items: Sequence[Item], config: GrpoConfig, on_progress: OnProgress
) -> list[GroupReport]:
    """A scored group for each item, never trained on: no advantages.

    The draws do not depend on the step, so that two probes of one prompt differ by the policy alone. `on_progress` gets the
    finished completions and their total, and may raise.
    """
    scored = sampler.sample_and_score(
        items,
        config.sampling.group_size,
        config.sampling,
        Draws(config.budget.seed, "probe"),
        on_progress=lambda phase, done, total: on_progress("probes", total if phase == "reward" else done, total),
    )
    return [report.model_copy(update={"state": "probe"}) for report in sampled_reports(scored)]
