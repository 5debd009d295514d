"""The typed group as the trainer's estimator sees it, in the records that the group's page draws from."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backend.contract.advantage import Advantage, GroupZscore, Softmax
from backend.contract.groups import CompletionRecord, Group
from dashboard.playground.reading import batch_of
from worker.algorithms.advantages import GroupStatistics
from worker.algorithms.estimator import estimate


@dataclass(frozen=True)
class Rewards:
    """What was typed. `rows` holds the values of each reward function; a single one, of weight 1, is the reward itself."""

    rows: Sequence[Sequence[float]]
    weights: Sequence[float]
    batch: Sequence[Sequence[float]] = ()  # the other groups

    @property
    def total(self) -> list[float]:
        """Each completion's reward: the weighted sum, NaN where a part is."""
        return [
            sum(weight * value for weight, value in zip(self.weights, values, strict=True))
            for values in zip(*self.rows, strict=True)
        ]


def rewards_of(rows: Sequence[Sequence[float]], weights: Sequence[float], batch: Sequence[Sequence[float]]) -> Rewards:
    """Rewards that fit together. Raises ValueError with the numbers where they do not."""
    sizes = [len(row) for row in rows]
    if len(set(sizes)) > 1:
        raise ValueError(
            f"Each completion needs a value from every reward function: they have {', '.join(map(str, sizes))}."
        )
    if len(weights) != len(rows):
        raise ValueError(f"{len(rows)} reward functions need {len(rows)} weights, not {len(weights)}.")
    return Rewards(rows, weights, batch)


def played(chosen: Advantage, rewards: Rewards) -> Group:
    """The group with its advantages, mean, std and state, as a run with this estimator would have recorded it."""
    rewards_P_G = batch_of([rewards.total, *rewards.batch])
    components_P_G_K = np.array([rewards.rows], dtype=np.float64).transpose(0, 2, 1)
    alone = chosen.reads == "components"
    estimated = estimate(
        chosen,
        rewards_P_G[:1] if alone else rewards_P_G,
        components_P_G_K=components_P_G_K if alone else None,
        weights_K=np.array(rewards.weights, dtype=np.float64) if alone else None,
    )
    advantages = estimated.advantages_P_G[0][: len(rewards.total)].tolist()
    return _group(rewards.total, advantages, estimated.statistics)


def zscore_readings(total: Sequence[float]) -> dict[str, Group]:
    """The same rewards under both standard deviations and as softmax weights."""
    rewards = Rewards([total], [1.0])
    return {
        "population": played(GroupZscore(std="population"), rewards),
        "sample": played(GroupZscore(std="sample"), rewards),
        "softmax": played(Softmax(), rewards),
    }


def _group(rewards: Sequence[float], advantages: Sequence[float], statistics: GroupStatistics) -> Group:
    scored, live = int(statistics.scored_P[0]), bool(statistics.live_P[0])
    completions = [
        CompletionRecord(
            id=place,
            index=place,
            text="",
            token_count=0,
            finish_reason="stop",
            reward=_finite(reward),
            advantage=advantage,
        )
        for place, (reward, advantage) in enumerate(zip(rewards, advantages, strict=True))
    ]
    return Group(
        id=0,
        run_id=0,
        attempt=0,
        step=0,
        index=0,
        prompt_id="",
        prompt_text="",
        state="live" if live else "zero_variance" if scored >= 2 else "unscored",
        scored=scored,
        reward_mean=_finite(float(statistics.mean_P[0])),
        reward_std=_finite(float(statistics.std_P[0])),
        completions=completions,
    )


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
