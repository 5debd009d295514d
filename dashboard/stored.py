"""A stored configuration as the pages read it: at dotted paths, by its rewards, as a run on a policy, and with a field replaced."""

import math
from collections.abc import Mapping
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from backend.contract.base import Json
from backend.contract.config import RECORDED
from backend.contract.records import Run
from backend.contract.stored import REWARDS, get, number_at, put, reward_functions, rewards_in, text_at

__all__ = ["REWARDS", "get", "number_at", "put", "reward_functions", "rewards_in", "text_at"]  # handed on as they are
T = TypeVar("T")
U = TypeVar("U")


def is_recorded(config: Mapping[str, Json]) -> bool:
    """Whether another program trains the run: what its configuration does not say is unknown, and has no default."""
    return config.get("kind") == RECORDED


def planned_steps(run: Run) -> int:
    """How many steps the run is to have; 0 for a recorded one that does not say."""
    return int(number_at(run.config, "budget.steps", 0)) if run.recorded else run.progress.total_steps


def reward_names(config: Mapping[str, Json]) -> list[str]:
    """The names of the reward functions, in their order."""
    return [text_at(function, "name") for function in reward_functions(config)]


def highest_reward(config: Mapping[str, Json]) -> float:
    """The reward of a completion that every function scores 1: the sum of the positive weights.

    It is the end of a scale. Where a function has no bound a reward can be higher: words ask `reward_bound`.
    """
    return sum(max(0.0, number_at(function, "weight", 1.0)) for function in reward_functions(config))


def as_policy_run(config: Mapping[str, Json]) -> dict[str, Json]:
    """The configuration with task, rewards and sampling where a policy run has them, also where pairs brought them."""
    pairs = get(dict(config), "pairs")
    if not isinstance(pairs, dict):
        return dict(config)
    decoding = pairs.get("decoding")
    sampling = {**(decoding if isinstance(decoding, dict) else {}), "group_size": pairs.get("group_size", 8)}
    asked = pairs if pairs.get("kind") == "dataset" else pairs.get("task")
    return {**config, "task": asked, "rewards": pairs.get("rewards"), "sampling": sampling}


def completions_per_step(config: Mapping[str, Json]) -> float:
    """Prompts × group size; NaN if another trainer has not said them."""
    unknown = math.nan if is_recorded(config) else 1
    return number_at(config, "sampling.prompts_per_step", unknown) * number_at(config, "sampling.group_size", unknown)


def part(model: TypeAdapter[T], config: Mapping[str, Json], path: str, otherwise: U) -> T | U:
    """The part at a dotted path, read as the model; `otherwise` if there is none, or if this version does not know it."""
    try:
        return model.validate_python(get(dict(config), path))
    except ValidationError:
        return otherwise
