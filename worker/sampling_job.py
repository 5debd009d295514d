"""A `sample` run: one group for each of a few prompts, scored if rewards are given, and not trained on."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from backend.contract.advantage import Gae
from backend.contract.groups import GroupReport
from backend.contract.protocol import LogLine, Report
from backend.contract.records import Progress
from backend.contract.sample import SampleConfig
from worker.algorithms.advantages import GroupStatistics
from worker.algorithms.estimator import estimate
from worker.credit import components_of, live_in
from worker.group_records import finite, sampled_reports
from worker.groups import GroupSampler, Scored
from worker.rewards.answers import number
from worker.rollout.draws import Draws
from worker.tasks.items import Item, draw, prompt_item
from worker.tasks.loading import load_items


def sampled_items(config: SampleConfig, *, fetch_upload: Callable[[int], bytes]) -> list[Item]:
    """What is asked: the typed prompts, or the items that the first step of a run with this task and seed would draw.

    Raises TaskError where the task has none.
    """
    if config.task is None:
        return [_typed(config, prompt) for prompt in config.prompts]
    items = load_items(config.task, fetch_upload=fetch_upload)
    return draw(items.train, cursor=0, count=config.task_prompts, seed=config.seed)


def sample_groups(
    config: SampleConfig, items: Sequence[Item], sampler: GroupSampler, attempt: int, show: Callable[[Progress], None]
) -> Report:
    """The groups, as the one report of the run, scored if the sampler has a scorer.

    Advantages are those that the configured estimator would train with; a critic, which knows nothing yet, gives none.
    """
    scored = sampler.sample_and_score(
        items,
        config.group_size,
        config.decoding,
        Draws(config.seed, "sample"),
        on_progress=lambda phase, done, total: show(Progress(total_steps=1, phase=phase, done=done, total=total)),
    )
    logs = [LogLine(level="warning", message=remark) for remark in sampler.policy.remarks]
    if sampler.scorer is None:
        return Report(attempt=attempt, seq=0, step=0, groups=sampled_reports(scored), logs=logs)
    metrics = {"reward": finite(float(scored.rewards_P_G.nanmean())), **sampler.scorer.take_metrics()}
    return Report(attempt=attempt, seq=0, step=0, groups=_compared(config, scored), metrics=metrics, logs=logs)


def _compared(config: SampleConfig, scored: Scored) -> list[GroupReport]:
    """The groups as a step would compare them: on numpy, as in training."""
    chosen, scores, size = config.algorithm.advantage, scored.scores, config.group_size
    if isinstance(chosen, Gae):
        return sampled_reports(scored)
    components_P_G_K, weights_K = components_of(scores, size)
    rewards_P_G = scores.total.reshape(-1, size)
    estimated = estimate(chosen, rewards_P_G, components_P_G_K=components_P_G_K, weights_K=weights_K)
    statistics = estimated.statistics._replace(live_P=live_in(chosen, scores, size))
    return sampled_reports(
        scored, torch.from_numpy(estimated.advantages_P_G), GroupStatistics(*map(torch.from_numpy, statistics))
    )


def _typed(config: SampleConfig, prompt: str) -> Item:
    """The prompt with its answer, compared as a number where it is one: the task that would know is not asked."""
    is_number = config.answer is not None and number(config.answer) is not None
    return replace(prompt_item(config, prompt, config.answer), verifier={"kind": "numeric" if is_number else "exact"})
