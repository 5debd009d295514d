"""Evaluation: the same held-out items every time, sampled with the same random numbers, and once greedily."""

from collections.abc import Callable, Sequence

import numpy as np

from backend.contract.grpo import GrpoConfig
from worker.policy.policy import Policy
from worker.rewards.scoring import RewardScorer, Sample, Scores
from worker.rollout.draws import Draws
from worker.rollout.sampler import Completion, sample
from worker.tasks.items import Item


def evaluate(
    policy: Policy,
    items: Sequence[Item],
    scorer: RewardScorer,
    config: GrpoConfig,
    on_progress: Callable[[int], None] = lambda done: None,
) -> dict[str, float]:
    """Metrics under `eval/`: pass@1 (the share of right samples), pass@n (one right among n), greedy_pass@1, reward.

    Right means that every `correctness` reward is 1; without such a reward only the reward and the length are measured.
    The draws do not depend on the step, so that two evaluations differ by the policy alone.
    """
    n = config.budget.eval_samples
    sampled = _complete(policy, items, config, n, Draws(config.budget.seed, "eval"), on_progress)
    greedy = _complete(policy, items, config, 1, None, lambda done: on_progress(len(items) * n + done))
    sampled_scores = scorer.score(_samples(items, sampled, n))
    metrics = {
        "eval/reward": float(np.nanmean(sampled_scores.total)) if np.isfinite(sampled_scores.total).any() else np.nan,
        "eval/mean_length": float(np.mean([len(completion.ids) for completion in sampled])),
    }
    right_N = _right(sampled_scores, config)
    if right_N is not None:
        right_P_n = right_N.reshape(len(items), n)
        metrics["eval/pass@1"] = float(right_P_n.mean())
        if n > 1:
            metrics[f"eval/pass@{n}"] = float(right_P_n.max(-1).mean())
        greedy_N = _right(scorer.score(_samples(items, greedy, 1)), config)
        if greedy_N is not None:
            metrics["eval/greedy_pass@1"] = float(greedy_N.mean())
    return metrics


def _complete(
    policy: Policy,
    items: Sequence[Item],
    config: GrpoConfig,
    n: int,
    draws: Draws | None,
    on_progress: Callable[[int], None],
) -> list[Completion]:
    prompts = [policy.encode(item)[1] for item in items]
    return sample(policy, prompts, group_size=n, decoding=config.sampling, draws=draws, on_progress=on_progress)


def _samples(items: Sequence[Item], completions: Sequence[Completion], n: int) -> list[Sample]:
    return [
        Sample(items[row // n].question, completion.text, len(completion.ids), items[row // n])
        for row, completion in enumerate(completions)
    ]


def _right(scores: Scores, config: GrpoConfig) -> np.ndarray | None:
    """1.0 for each sample whose correctness rewards are all 1; None where the run has no such reward."""
    names = {function.name for function in config.rewards.functions if function.kind == "correctness"}
    if not names:
        return None
    return np.array(
        [float(all(score.raw == 1 for score in parts if score.name in names)) for parts in scores.components]
    )
