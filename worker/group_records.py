"""From a step's arrays to the group records that people open."""

import math

from torch import Tensor

from backend.contract.records import CompletionData, GroupReport, GroupState, RewardScore
from worker.algorithms.advantages import GroupStatistics
from worker.micro_batches import TokenRecord
from worker.rewards.scoring import Scores
from worker.rollout.rollout import Rollout


def group_reports(
    rollout: Rollout,
    scores: Scores | None,
    rewards_P_G: Tensor,
    statistics: GroupStatistics,
    advantages_P_G: Tensor | None = None,
    tokens: TokenRecord | None = None,
) -> list[GroupReport]:
    """One record for each group; without advantages and tokens for a group that is only looked at."""
    reports = []
    size = rollout.group_size
    for p, item in enumerate(rollout.items_P):
        completions = [
            _completion(g, p * size + g, rollout, scores, rewards_P_G, advantages_P_G, tokens) for g in range(size)
        ]
        reports.append(
            GroupReport(
                index=p,
                prompt_id=item.id,
                prompt_text=rollout.prompt_texts_P[p],
                prompt=item.question,
                answer=item.answer,
                state=_state(float(statistics.scored_P[p]), bool(statistics.live_P[p])),
                scored=int(statistics.scored_P[p]),
                truncated=sum(completion.finish_reason == "length" for completion in completions),
                reward_mean=finite(float(statistics.mean_P[p])),
                reward_std=finite(float(statistics.std_P[p])),
                completions=completions,
            )
        )
    return reports


def _state(scored: float, live: bool) -> GroupState:
    """A group carries a signal if two scored rewards differ; one with fewer than two scored cannot be judged at all."""
    if live:
        return "live"
    return "zero_variance" if scored >= 2 else "unscored"


def _completion(
    index: int,
    row: int,
    rollout: Rollout,
    scores: Scores | None,
    rewards_P_G: Tensor,
    advantages_P_G: Tensor | None,
    tokens: TokenRecord | None,
) -> CompletionData:
    completion = rollout.completions_R[row]
    per_sequence = _sums(row, tokens) if tokens is not None else {"logprob_sum": finite(math.fsum(completion.logprobs))}
    group = row // rollout.group_size
    return CompletionData(
        index=index,
        text=completion.text,
        token_count=len(completion.ids),
        finish_reason=completion.finish_reason,
        rewards=[
            RewardScore(name=score.name, raw=score.raw, weight=score.weight, error=score.error)
            for score in (scores.components[row] if scores is not None else [])
        ],
        reward=finite(float(rewards_P_G[group, index])),
        advantage=None if advantages_P_G is None else finite(float(advantages_P_G[group, index])),
        **per_sequence,
    )


def _sums(row: int, tokens: TokenRecord) -> dict[str, float | None]:
    mask = tokens.mask[row]

    def mean(values: Tensor | None) -> float | None:
        return None if values is None else finite(float(values[row][mask].double().mean()))

    def total(values: Tensor | None) -> float | None:
        return None if values is None else finite(float(values[row][mask].double().sum()))

    return {
        "logprob_sum": total(tokens.old_logprob),
        "logprob_sum_after": total(tokens.logprob_after),
        "kl_mean": mean(tokens.kl),
        "entropy_mean": mean(tokens.entropy),
        "ratio_mean": mean(tokens.ratio),
        "clipped_share": finite(float(tokens.clipped[row][mask].double().mean())),
    }


def finite(value: float) -> float | None:
    """The value, or None where it is not a finite number: what was not measured is never shown as 0."""
    return value if math.isfinite(value) else None
