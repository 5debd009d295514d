"""Held-out prompts: the same every time, drawn with the same random numbers, measured in evaluations and kept as groups in probes."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from backend.contract.groups import GroupReport
from backend.contract.grpo import GrpoConfig
from backend.contract.reward import reward_bound
from worker.group_records import known_mean, sampled_reports
from worker.groups import GroupSampler, OnProgress, Scored
from worker.rewards.scoring import Scores
from worker.rollout.draws import Draws
from worker.tasks.items import Item, Items


def sample_probes(
    sampler: GroupSampler, items: Items, config: GrpoConfig, step: int, on_progress: OnProgress
) -> list[GroupReport]:
    """A scored group for each prompt to probe before the update of `step`, at regular steps and before the last one; else none.

    They are never trained on: no advantages. The draws do not depend on the step, so that two probes of one prompt differ by
    the policy alone. `on_progress` gets the finished completions and their total, and may raise.
    """
    telemetry = config.telemetry
    probed = (items.held_out or items.train)[: telemetry.probe_prompts]
    if not probed or (step % telemetry.probe_every and step != config.budget.steps - 1):
        return []
    scored = sampler.sample_and_score(
        probed,
        config.sampling.group_size,
        config.sampling,
        Draws(config.budget.seed, "probe"),
        on_progress=lambda phase, done, total: on_progress("probes", total if phase == "reward" else done, total),
    )
    return [report.model_copy(update={"state": "probe"}) for report in sampled_reports(scored)]


def evaluate(
    sampler: GroupSampler,
    items: Sequence[Item],
    config: GrpoConfig,
    on_progress: Callable[[int], None] = lambda done: None,
) -> dict[str, float]:
    """Metrics under `eval/`: pass@1 (the share of right samples), pass@n (one right among n), greedy_pass@1, reward, and cost.

    Right means that every `correctness` reward is 1; without such a reward only the reward and the length are measured, and
    nothing is sampled greedily. Samples that could not be scored count in no share; an item with such a sample is left out of
    pass@n, right ones beside it or not. The draws do not depend on the step, so that two evaluations differ by the policy
    alone. `on_progress` gets the finished completions, and again their number while they are scored; it may raise.
    """
    n, sampled = config.budget.eval_samples, len(items) * config.budget.eval_samples

    def complete(n: int, draws: Draws | None, before: int) -> Scored:
        return sampler.sample_and_score(
            items,
            n,
            config.sampling,
            draws,
            on_progress=lambda phase, done, total: on_progress(before + (total if phase == "reward" else done)),
        )

    drawn = complete(n, Draws(config.budget.seed, "eval"), 0)
    lengths_R = [len(completion.ids) for completion in drawn.rollout.completions_R]
    metrics = {"eval/reward": known_mean(drawn.scores.total), "eval/mean_length": float(np.mean(lengths_R))}
    right_N = _right(drawn.scores, config)
    if right_N is not None:
        right_P_n = right_N.reshape(len(items), n)
        metrics["eval/pass@1"] = known_mean(right_P_n)
        for source in sorted({item.source for item in items} - {""}):
            of_source_P = np.array([item.source == source for item in items])
            metrics[f"eval/source/{source:.150}/pass@1"] = known_mean(right_P_n[of_source_P])
        if n > 1:
            # NaN where a sample is unscored, even beside a right one: to keep that item alone would select right answers.
            best_P = right_P_n.max(-1)
            metrics |= {f"eval/pass@{n}": known_mean(best_P), "eval/scored_items": float((~np.isnan(best_P)).sum())}
        right_P = _right(complete(1, None, sampled).scores, config)
        if right_P is not None:
            metrics["eval/greedy_pass@1"] = known_mean(right_P)
    costs = {} if sampler.scorer is None else sampler.scorer.take_metrics(sampler.policy.ranks)
    return metrics | {f"eval/{name}": value for name, value in costs.items()}


def success(scores: Scores, config: GrpoConfig) -> NDArray[np.float64]:
    """How far each completion succeeded, from 0 to 1, NaN if it is unscored: whether it is right, or without a correctness reward its
    share of the highest reward."""
    right_N = _right(scores, config)
    if right_N is not None:
        return right_N
    bound = reward_bound(config.model_dump(mode="json"))
    assert bound is not None  # noqa: S101 — GrpoConfig refuses a curriculum otherwise
    return np.clip(scores.total / bound, 0.0, 1.0)


def _right(scores: Scores, config: GrpoConfig) -> NDArray[np.float64] | None:
    """1 for each sample whose correctness rewards are all 1, else 0; NaN where one of them could not score it.

    None if the run has no such reward.
    """
    names = {function.name for function in config.rewards.functions if function.kind == "correctness"}
    if not names:
        return None
    raws_N = [[score.raw for score in parts if score.name in names] for parts in scores.components]
    return np.array([math.nan if None in raws else float(all(raw == 1 for raw in raws)) for raws in raws_N])
