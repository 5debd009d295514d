"""From a step's arrays to the group records that people open."""

import math

from torch import Tensor

from backend.contract.groups import CompletionData, GroupReport, GroupState, RewardScore
from backend.contract.reward import KL_PENALTY
from worker.algorithms.advantages import GroupStatistics, group_statistics
from worker.credit import Credit
from worker.rewards.scoring import Scores
from worker.rollout.rollout import Rollout
from worker.scored import Scored
from worker.token_record import TokenRecord


def group_reports(
    rollout: Rollout, scores: Scores, credit: Credit, tokens: TokenRecord, *, beta: float
) -> list[GroupReport]:
    """One record for each group that was trained on."""
    advantages_R = credit.advantages_P_G(tokens.mask).flatten()
    completions_R = []
    for row, completion in enumerate(_completions(rollout, scores, credit.rewards_P_G)):
        rewards = completion.rewards
        if credit.penalty_R is not None:
            penalty = RewardScore(name=KL_PENALTY, raw=finite(-float(credit.penalty_R[row])), weight=beta)
            rewards = [*rewards, penalty]
        trained = {"rewards": rewards, "advantage": finite(float(advantages_R[row])), **_sums(row, tokens)}
        completions_R.append(completion.model_copy(update=trained))
    return _groups(rollout, completions_R, credit.statistics)


def sampled_reports(
    rollout: Rollout, scores: Scores | None, rewards_P_G: Tensor, advantages_P_G: Tensor | None
) -> list[GroupReport]:
    """One record for each group that is only looked at."""
    completions_R = _completions(rollout, scores, rewards_P_G)
    if advantages_P_G is not None:
        advantages_R = advantages_P_G.flatten().tolist()
        completions_R = [
            completion.model_copy(update={"advantage": finite(advantage)})
            for completion, advantage in zip(completions_R, advantages_R, strict=True)
        ]
    return _groups(rollout, completions_R, group_statistics(rewards_P_G))


def filtered_reports(filtered: Scored, *, first_index: int) -> list[GroupReport]:
    """The groups that dynamic sampling took out, numbered after those that were trained on."""
    looked_at = sampled_reports(filtered.rollout, filtered.scores, filtered.rewards_P_G, None)
    return [
        report.model_copy(update={"index": first_index + place, "state": "filtered"})
        for place, report in enumerate(looked_at)
    ]


def _groups(rollout: Rollout, completions_R: list[CompletionData], statistics: GroupStatistics) -> list[GroupReport]:
    size = rollout.group_size
    return [
        _group(rollout, p, completions_R[p * size : (p + 1) * size], statistics) for p in range(len(rollout.items_P))
    ]


def _group(rollout: Rollout, p: int, completions: list[CompletionData], statistics: GroupStatistics) -> GroupReport:
    item = rollout.items_P[p]
    return GroupReport(
        index=p,
        prompt_id=item.id,
        prompt_text=rollout.prompt_texts_P[p],
        prompt=item.question,
        answer=item.answer,
        state=_state(float(statistics.scored_P[p]), bool(statistics.live_P[p]), len(completions)),
        scored=int(statistics.scored_P[p]),
        truncated=sum(completion.finish_reason == "length" for completion in completions),
        reward_mean=finite(float(statistics.mean_P[p])),
        reward_std=finite(float(statistics.std_P[p])),
        completions=completions,
    )


def _state(scored: float, live: bool, size: int) -> GroupState:
    """A group carries a signal if two scored rewards differ; one with fewer than two scored, of several, cannot be judged."""
    if live:
        return "live"
    return "zero_variance" if scored >= min(2, size) else "unscored"


def _completions(rollout: Rollout, scores: Scores | None, rewards_P_G: Tensor) -> list[CompletionData]:
    rewards_R = rewards_P_G.flatten().tolist()
    return [
        CompletionData(
            index=row % rollout.group_size,
            text=completion.text,
            token_count=len(completion.ids),
            finish_reason=completion.finish_reason,
            rewards=[] if scores is None else _components(scores, row),
            reward=finite(rewards_R[row]),
            logprob_sum=finite(math.fsum(completion.logprobs)),
        )
        for row, completion in enumerate(rollout.completions_R)
    ]


def _components(scores: Scores, row: int) -> list[RewardScore]:
    return [
        RewardScore(name=score.name, raw=score.raw, weight=score.weight, error=score.error)
        for score in scores.components[row]
    ]


def _sums(row: int, tokens: TokenRecord) -> dict[str, float | None]:
    def mean(name: str) -> float | None:
        values = tokens.row(name, row)
        return None if values is None else finite(float(values.double().mean()))

    def total(name: str) -> float | None:
        values = tokens.row(name, row)
        return None if values is None else finite(float(values.double().sum()))

    return {
        "logprob_sum": total("old_logprob"),
        "logprob_sum_after": total("logprob_after"),
        "kl_mean": mean("kl"),
        "entropy_mean": mean("entropy"),
        "ratio_mean": mean("ratio"),
        "clipped_share": mean("clipped"),
    }


def finite(value: float) -> float | None:
    """The value, or None where it is not a finite number: what was not measured is never shown as 0."""
    return value if math.isfinite(value) else None
