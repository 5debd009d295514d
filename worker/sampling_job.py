"""A `sample` run: one group for each of a few prompts, scored where rewards are given, and not trained on."""

import math
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
from worker.policy.policy import Policy
from worker.rewards.numeric import number
from worker.rewards.scoring import RewardScorer, Scores
from worker.rollout.draws import Draws
from worker.rollout.engine import Request
from worker.rollout.rollout import Rollout
from worker.rollout.sampler import NativeEngine
from worker.tasks.items import Item, draw
from worker.tasks.loading import load_items
from worker.tasks.single_prompt import prompt_item
from worker.trainer import samples_of


def sampled_items(config: SampleConfig, *, fetch_upload: Callable[[int], bytes]) -> list[Item]:
    """What is asked: the typed prompts, or the items that the first step of a run with this task and seed would draw.

    Raises TaskError where the task has none.
    """
    if config.task is None:
        return [_typed(config, prompt) for prompt in config.prompts]
    items = load_items(config.task, fetch_upload=fetch_upload)
    return draw(items.train, cursor=0, count=config.task_prompts, seed=config.seed)


def sample_groups(
    config: SampleConfig,
    items: Sequence[Item],
    policy: Policy,
    attempt: int,
    show: Callable[[Progress], None],
    scorer: RewardScorer | None = None,
) -> Report:
    """The groups, as the one report of the run, scored where there is a scorer.

    Advantages are those that the configured estimator would train with; of a critic, which knows nothing yet, there are none.
    """
    total = len(items) * config.group_size
    show(Progress(total_steps=1, phase="rollout", done=0, total=total))
    prompts = [policy.encode(item) for item in items]
    completions = NativeEngine(policy).sample(
        Request(
            [ids for _, ids in prompts],
            group_size=config.group_size,
            decoding=config.decoding,
            draws=Draws(config.seed, "sample"),
        ),
        on_progress=lambda done: show(Progress(total_steps=1, phase="rollout", done=done, total=total)),
    )
    rollout = Rollout(items, [text for text, _ in prompts], [ids for _, ids in prompts], config.group_size, completions)
    logs = [LogLine(level="warning", message=remark) for remark in policy.remarks]
    if scorer is None:
        unscored_P_G = torch.full((len(items), config.group_size), math.nan, dtype=torch.float64)
        groups = sampled_reports(rollout, None, unscored_P_G, None)
        return Report(attempt=attempt, seq=0, step=0, groups=groups, logs=logs)
    scores = scorer.score(
        samples_of(rollout), lambda done: show(Progress(total_steps=1, phase="reward", done=done, total=total))
    )
    reward = float(torch.from_numpy(scores.total).nanmean())
    metrics = {"reward": finite(reward), **scorer.take_metrics()}
    return Report(attempt=attempt, seq=0, step=0, groups=_compared(config, rollout, scores), metrics=metrics, logs=logs)


def _compared(config: SampleConfig, rollout: Rollout, scores: Scores) -> list[GroupReport]:
    """The groups as a step would compare them: on numpy, as in training."""
    chosen, size = config.algorithm.advantage, config.group_size
    rewards_P_G = scores.total.reshape(-1, size)
    if isinstance(chosen, Gae):
        return sampled_reports(rollout, scores, torch.from_numpy(rewards_P_G), None)
    components_P_G_K, weights_K = components_of(scores, size)
    estimated = estimate(chosen, rewards_P_G, components_P_G_K=components_P_G_K, weights_K=weights_K)
    statistics = estimated.statistics._replace(live_P=live_in(chosen, scores, size))
    return sampled_reports(
        rollout,
        scores,
        torch.from_numpy(rewards_P_G),
        torch.from_numpy(estimated.advantages_P_G),
        GroupStatistics(*map(torch.from_numpy, statistics)),
    )


def _typed(config: SampleConfig, prompt: str) -> Item:
    """The prompt with its answer, compared as a number where it is one: the task that would know is not asked."""
    is_number = config.answer is not None and number(config.answer) is not None
    return replace(prompt_item(config, prompt, config.answer), verifier={"kind": "numeric" if is_number else "exact"})
