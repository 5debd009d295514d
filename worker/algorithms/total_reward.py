"""The total reward: a weighted sum, with gates, less the KL penalty where that is in the reward."""

import math
from collections.abc import Mapping, Sequence

from backend.contract.reward import Gate, Rewards
from worker.algorithms.arrays import Array


def total_reward(raw: Mapping[str, float | None], rewards: Rewards) -> float:
    """The sum of weight × raw score, without the rewards whose gate is closed; NaN if a score that counts is missing."""
    scores = {name: math.nan if score is None else score for name, score in raw.items()}
    closed = closed_gates(raw, rewards.gates)
    if any(math.isnan(scores[name]) for name in counting(rewards)):
        return math.nan
    return math.fsum(
        function.weight * scores[function.name]
        for function in rewards.functions
        if function.weight and function.name not in closed
    )


def closed_gates(raw: Mapping[str, float | None], gates: Sequence[Gate]) -> dict[str, str]:
    """The rewards whose gate is closed, each with the reward that its gate requires.

    A gate is open if the raw score of the reward it requires reaches `at_least`; a missing score closes no gate.
    """
    known = {name: score for name, score in raw.items() if score is not None}
    return {gate.reward: gate.requires for gate in gates if known.get(gate.requires, math.inf) < gate.at_least}


def counting(rewards: Rewards) -> frozenset[str]:
    """The rewards that the total depends on: those with a weight, and those that a gate requires.

    What is only measured (weight 0) moves nothing, also where it fails.
    """
    required = {gate.requires for gate in rewards.gates}
    return frozenset(one.name for one in rewards.functions if one.weight or one.name in required)


def with_penalty(totals_R: Array, minus_kl_R: Array, *, beta: float) -> Array:
    """The rewards with β × minus the sum of each completion's KL added, as its record spells it."""
    return totals_R + beta * minus_kl_R
