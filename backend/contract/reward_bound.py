"""How much reward a completion can get, read from a stored configuration: any version may have written it, so any field may be absent."""

from collections.abc import Mapping

from backend.contract.base import Json

BOUNDED = frozenset({"correctness", "format", "length", "pattern", "judge"})  # kinds whose raw score is from 0 to 1


def reward_bound(config: Mapping[str, Json]) -> float | None:
    """The highest total reward; None where a function's score has no bound, or where no function can add to the reward."""
    rewards = config.get("rewards")
    functions = rewards.get("functions") if isinstance(rewards, dict) else None
    total = 0.0
    for function in functions if isinstance(functions, list) else []:
        if isinstance(function, dict) and (weight := _weight(function)):
            if function.get("kind") not in BOUNDED:
                return None
            total += max(0.0, weight)
    return total or None


def _weight(function: Mapping[str, Json]) -> float:
    weight = function.get("weight", 1.0)
    return float(weight) if isinstance(weight, int | float) and not isinstance(weight, bool) else 1.0
