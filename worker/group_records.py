"""From a step's arrays to the group records that people open."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from backend.contract.base import finite
from backend.contract.groups import CompletionData, GroupReport, RewardScore
from backend.contract.reward import KL_PENALTY
from worker.algorithms.advantages import GroupStatistics, group_state, group_statistics
from worker.credit import Credit, Values
from worker.groups import Scored
from worker.rewards.scoring import Scores
from worker.rollout.engine import Rollout
from worker.token_record import TokenRecord


def group_reports(
    rollout: Rollout, scores: Scores, credit: Credit, tokens: TokenRecord, *, beta: float
) -> list[GroupReport]:
    """One record for each group that was trained on, or left out of the pass because it had nothing to teach."""
    trained = {
        "advantage": credit.advantages_R(tokens.mask),
        "logprob_sum": tokens.sums("old_logprob"),
        "logprob_sum_after": tokens.sums("logprob_after"),
        "kl_mean": tokens.means("kl"),
        "entropy_mean": tokens.means("entropy"),
        "ratio_mean": tokens.means("ratio"),
        "clipped_share": tokens.means("clipped"),
    }
    rewards_R = scores.components
    if credit.penalty_R is not None:
        penalties_R = [[RewardScore(name=KL_PENALTY, raw=finite(-kl), weight=beta)] for kl in credit.penalty_R.tolist()]
        rewards_R = [rewards + penalty for rewards, penalty in zip(rewards_R, penalties_R, strict=True)]
    return _groups(rollout, rewards_R, credit.rewards_P_G, trained, credit.statistics)


def sampled_reports(
    scored: Scored, advantages_P_G: Values | None = None, statistics: GroupStatistics | None = None
) -> list[GroupReport]:
    """One record for each group that is not trained on; its log-probs are the sampler's.

    `statistics` are those of an estimator, else the group's own.
    """
    known = {"logprob_sum": np.array([math.fsum(one.logprobs) for one in scored.rollout.completions_R])}
    if advantages_P_G is not None:
        known["advantage"] = advantages_P_G.flatten()
    rewards_P_G = scored.rewards_P_G
    statistics = statistics or group_statistics(rewards_P_G)
    return _groups(scored.rollout, scored.scores.components, rewards_P_G, known, statistics)


def filtered_reports(filtered: Scored, *, first_index: int) -> list[GroupReport]:
    """The groups that dynamic sampling took out, numbered after those that were trained on."""
    return [
        report.model_copy(update={"index": first_index + place, "state": "filtered"})
        for place, report in enumerate(sampled_reports(filtered))
    ]


def _groups(
    rollout: Rollout,
    rewards_R: Sequence[list[RewardScore]],
    rewards_P_G: Values,
    numbers_R: Mapping[str, Values],
    statistics: GroupStatistics,
) -> list[GroupReport]:
    """The groups and their completions with what is known of each; a number that is not finite was not measured."""
    size, known = rollout.group_size, {**numbers_R, "reward": rewards_P_G.flatten()}
    columns = {name: [finite(value) for value in values.tolist()] for name, values in known.items()}
    completions_R = [
        CompletionData(
            index=row % size,
            text=completion.text,
            token_count=len(completion.ids),
            finish_reason=completion.finish_reason,
            rewards=rewards_R[row],
            **{name: column[row] for name, column in columns.items()},
        )
        for row, completion in enumerate(rollout.completions_R)
    ]
    reports = []
    for p, item in enumerate(rollout.items_P):
        completions = completions_R[p * size : (p + 1) * size]
        scored, live = int(statistics.scored_P[p]), bool(statistics.live_P[p])
        reports.append(
            GroupReport(
                index=p,
                prompt_id=item.id,
                prompt_text=rollout.prompt_texts_P[p],
                prompt=item.question,
                answer=item.answer,
                state=group_state(scored=scored, live=live, size=size),
                scored=scored,
                truncated=sum(completion.finish_reason == "length" for completion in completions),
                reward_mean=finite(float(statistics.mean_P[p])),
                reward_std=finite(float(statistics.std_P[p])),
                completions=completions,
            )
        )
    return reports


def known_mean(values: Values) -> float:
    """The mean of the known ones; NaN if none is known."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan
