"""A `sample` run: one group for each of a few prompts, scored where rewards are given, and not trained on."""

import math
from collections.abc import Callable
from dataclasses import replace

import torch

from backend.contract.protocol import LogLine, Report
from backend.contract.records import Progress
from backend.contract.sample import SampleConfig
from worker.algorithms.advantages import group_zscore
from worker.group_records import finite, sampled_reports
from worker.policy.policy import Policy
from worker.rewards.numeric import number
from worker.rewards.scoring import RewardScorer
from worker.rollout.draws import Draws
from worker.rollout.engine import Request
from worker.rollout.rollout import Rollout
from worker.rollout.sampler import NativeEngine
from worker.tasks.items import Item
from worker.tasks.single_prompt import prompt_item
from worker.trainer import samples_of


def sample_groups(
    config: SampleConfig,
    policy: Policy,
    attempt: int,
    show: Callable[[Progress], None],
    scorer: RewardScorer | None = None,
) -> Report:
    """The groups, as the one report of the run, scored where there is a scorer. Advantages are GRPO's, to show what training would make of them."""
    items = [_item(config, prompt) for prompt in config.prompts]
    prompts = [policy.encode(item) for item in items]
    total = len(items) * config.group_size
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
    scores = None
    rewards_P_G = torch.full((len(items), config.group_size), math.nan, dtype=torch.float64)
    if scorer is not None:
        scores = scorer.score(
            samples_of(rollout), lambda done: show(Progress(total_steps=1, phase="reward", done=done, total=total))
        )
        rewards_P_G = torch.from_numpy(scores.total).reshape(rewards_P_G.shape)
    advantages_P_G = None
    if scores is not None:  # on numpy, as in training
        advantages_P_G = torch.from_numpy(group_zscore(rewards_P_G.numpy(), std="population", eps=1e-8))
    groups = sampled_reports(rollout, scores, rewards_P_G, advantages_P_G)
    metrics: dict[str, float | None] = {}
    if scorer is not None:
        metrics = {"reward": finite(float(rewards_P_G.nanmean())), **scorer.take_metrics()}
    logs = [LogLine(level="warning", message=remark) for remark in policy.remarks]
    return Report(attempt=attempt, seq=0, step=0, groups=groups, metrics=metrics, logs=logs)


def _item(config: SampleConfig, prompt: str) -> Item:
    """The prompt with its answer, compared as a number where it is one: the task that would know is not asked."""
    is_number = config.answer is not None and number(config.answer) is not None
    return replace(prompt_item(config, prompt, config.answer), verifier={"kind": "numeric" if is_number else "exact"})
