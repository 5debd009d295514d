"""From a step's arrays to the group records that people open."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from backend.contract.groups import CompletionData, GroupReport, RewardScore
from backend.contract.reward import KL_PENALTY
from worker.algorithms.advantages import GroupStatistics, group_state, group_statistics
from worker.credit import Credit
from worker.groups import Scored
from worker.rewards.scoring import Scores
from worker.rollout.engine import Rollout
from worker.token_record import TokenRecord


def group_reports(
    rollout: Rollout, scores: Scores, credit: Credit, tokens: TokenRecord, *, beta: float
) -> list[GroupReport]:
    """One record for each group that was trained on, or left out of the pass because it had nothing to teach."""
    trained = {
        "advantage": credit.advantages_P_G(tokens.mask).flatten().numpy(),
        "logprob_sum": tokens.sums("old_logprob"),
        "logprob_sum_after": tokens.sums("logprob_after"),
        "kl_mean": tokens.means("kl"),
        "entropy_mean": tokens.means("entropy"),
        "ratio_mean": tokens.means("ratio"),
        "clipped_share": tokens.means("clipped"),
    }
    rewards_R = _components(scores)
    if credit.penalty_R is not None:
        for rewards, penalty in zip(rewards_R, credit.penalty_R.tolist(), strict=True):
            rewards.append(RewardScore(name=KL_PENALTY, raw=finite(-penalty), weight=beta))
    return _groups(rollout, _completions(rollout, rewards_R, credit.rewards_P_G, trained), credit.statistics)


def sampled_reports(
    scored: Scored, advantages_P_G: Tensor | None = None, statistics: GroupStatistics | None = None
) -> list[GroupReport]:
    """One record for each group that is not trained on; its log-probs are the sampler's.

    `statistics` are those of an estimator, else the group's own.
    """
    rollout, rewards_P_G = scored.rollout, scored.rewards_P_G
    known = {"logprob_sum": np.array([math.fsum(completion.logprobs) for completion in rollout.completions_R])}
    if advantages_P_G is not None:
        known["advantage"] = advantages_P_G.flatten().numpy()
    completions_R = _completions(rollout, _components(scored.scores), rewards_P_G, known)
    return _groups(rollout, completions_R, statistics or group_statistics(rewards_P_G))


def filtered_reports(filtered: Scored, *, first_index: int) -> list[GroupReport]:
    """The groups that dynamic sampling took out, numbered after those that were trained on."""
    return [
        report.model_copy(update={"index": first_index + place, "state": "filtered"})
        for place, report in enumerate(sampled_reports(filtered))
    ]


def _groups(rollout: Rollout, completions_R: list[CompletionData], statistics: GroupStatistics) -> list[GroupReport]:
    size = rollout.group_size
    columns = (statistics.scored_P, statistics.live_P, statistics.mean_P, statistics.std_P)
    return [
        _group(rollout, p, completions_R[p * size : (p + 1) * size], *numbers)
        for p, numbers in enumerate(zip(*(column.tolist() for column in columns), strict=True))
    ]


def _group(
    rollout: Rollout, p: int, completions: list[CompletionData], scored: float, live: bool, mean: float, std: float
) -> GroupReport:
    item = rollout.items_P[p]
    return GroupReport(
        index=p,
        prompt_id=item.id,
        prompt_text=rollout.prompt_texts_P[p],
        prompt=item.question,
        answer=item.answer,
        state=group_state(scored=scored, live=live, size=len(completions)),
        scored=int(scored),
        truncated=sum(completion.finish_reason == "length" for completion in completions),
        reward_mean=finite(mean),
        reward_std=finite(std),
        completions=completions,
    )


def _completions(
    rollout: Rollout,
    rewards_R: Sequence[list[RewardScore]],
    rewards_P_G: Tensor,
    numbers_R: Mapping[str, NDArray[np.float64]],
) -> list[CompletionData]:
    """The completions with what is known of each; a number that is not finite was not measured."""
    columns = {name: [finite(value) for value in values.tolist()] for name, values in numbers_R.items()}
    totals_R = rewards_P_G.flatten().tolist()
    return [
        CompletionData(
            index=row % rollout.group_size,
            text=completion.text,
            token_count=len(completion.ids),
            finish_reason=completion.finish_reason,
            rewards=rewards_R[row],
            reward=finite(totals_R[row]),
            **{name: column[row] for name, column in columns.items()},
        )
        for row, completion in enumerate(rollout.completions_R)
    ]


def _components(scores: Scores) -> list[list[RewardScore]]:
    return [
        [RewardScore(name=score.name, raw=score.raw, weight=score.weight, error=score.error) for score in parts]
        for parts in scores.components
    ]


def finite(value: float) -> float | None:
    """The value, or None where it is not a finite number: what was not measured is never shown as 0."""
    return value if math.isfinite(value) else None
