"""What a person types into the Playground: rewards, further rows of them, and what a run would make of them."""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from backend.contract.advantage import Advantage
from backend.contract.algorithm import Algorithm
from backend.contract.base import finite
from backend.contract.groups import RewardScore
from backend.contract.inspection import CompletionScores, GroupScores
from backend.contract.reward import Correctness, Rewards
from dashboard.algorithm.recomputation import Own, StepArrays, recompute
from dashboard.wording import show_number
from worker.algorithms.total_reward import total_reward

MOST = 1024  # completions of a group, as in a run
MOST_FUNCTIONS, LARGEST_WEIGHT = 16, 1000  # as in a run
LARGEST = 1e6
UNSCORED = ("nan", "-", "–", "−")


class Typed(NamedTuple):
    """The typed group. `rows` holds the values of each reward function; a single one, of weight 1, is the reward itself."""

    rows: Sequence[Sequence[float]]
    weights: Sequence[float] = (1.0,)
    batch: Sequence[Sequence[float]] = ()  # the rewards of the other groups


def read_rewards(text: str, *, most: int = MOST) -> list[float]:
    """The numbers, NaN for one that could not be scored. Raises ValueError with what is wrong, in words."""
    words = [word for word in re.split(r"[\s,]+", text.strip()) if word]
    if not words:
        raise ValueError("Type at least one number, such as 1, 0, 0.5.")
    if len(words) > most:
        raise ValueError(f"{len(words)} numbers are too many: {most} at most.")
    return [_number(word) for word in words]


def read_rows(text: str) -> list[list[float]]:
    """Rows of such numbers with semicolons between them; none where nothing is typed."""
    return [read_rewards(row) for row in text.split(";") if row.strip()]


def _number(word: str) -> float:
    if word.lower() in UNSCORED:
        return math.nan
    try:
        value = float(word.replace("−", "-"))
    except ValueError:
        raise ValueError(f"“{word}” is not a number.") from None
    if not abs(value) <= LARGEST:
        raise ValueError(f"{word} is too large: up to {LARGEST:,.0f}.")
    return value


def written(rewards: Sequence[float | None]) -> str:
    """The rewards as a person would type them."""
    return ", ".join("-" if reward is None or math.isnan(reward) else show_number(float(reward)) for reward in rewards)


def fitting(rows: Sequence[Sequence[float]], weights: Sequence[float]) -> Typed:
    """The values of several reward functions and their weights. Raises ValueError with the numbers if they do not fit."""
    sizes = [len(row) for row in rows]
    if len(set(sizes)) > 1:
        raise ValueError(
            f"Each completion needs a value from every reward function: they have {', '.join(map(str, sizes))}."
        )
    if len(weights) != len(rows):
        raise ValueError(f"{len(rows)} reward functions need {len(rows)} weights, not {len(weights)}.")
    if len(rows) > MOST_FUNCTIONS or not all(abs(weight) <= LARGEST_WEIGHT for weight in weights):
        raise ValueError(f"A run has {MOST_FUNCTIONS} reward functions at most, with weights up to ±{LARGEST_WEIGHT}.")
    return Typed(rows, weights)


def played(chosen: Advantage, typed: Typed) -> GroupScores:
    """The typed group as a run with this estimator would have recorded it: its advantages, mean, std and state."""
    rewards = Rewards(
        functions=[Correctness(name=f"reward-{place}", weight=weight) for place, weight in enumerate(typed.weights, 1)]
    )
    step = StepArrays([_unjudged(rewards, typed.rows), *(_unjudged(rewards, [row]) for row in typed.batch)])
    own = Own(Algorithm(advantage=chosen), rewards, max_new_tokens=1)
    recomputed = recompute(step, own, own.settings)
    group, statistics = step.groups[0], recomputed.statistics
    advantages = recomputed.advantages_P_G[0].tolist()
    return group.model_copy(
        update={
            "state": recomputed.states[0],
            "scored": int(statistics.scored_P[0]),
            "reward_mean": finite(float(statistics.mean_P[0])),
            "reward_std": finite(float(statistics.std_P[0])),
            "completions": [
                one.model_copy(update={"advantage": advantage})
                for one, advantage in zip(group.completions, advantages, strict=False)
            ],
        }
    )


def _unjudged(rewards: Rewards, rows: Sequence[Sequence[float]]) -> GroupScores:
    """The group with its rewards and nothing that is computed from them."""
    completions = []
    for place, values in enumerate(zip(*rows, strict=True)):
        scores = [
            RewardScore(name=one.name, raw=finite(value), weight=one.weight)
            for one, value in zip(rewards.functions, values, strict=True)
        ]
        reward = finite(total_reward({score.name: score.raw for score in scores}, rewards))
        completions.append(
            CompletionScores(id=place, index=place, token_count=0, finish_reason="stop", rewards=scores, reward=reward)
        )
    return GroupScores(id=0, index=0, prompt_id="", prompt="", state="live", scored=0, completions=completions)
