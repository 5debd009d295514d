"""The rewards in a stored configuration, whatever its kind."""

from collections.abc import Iterator, Mapping
from typing import Any

from backend.contract.base import Json


def reward_model_sources(config: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """The field and the source of each reward model."""
    for field, function in rewards_in(config):
        if function["kind"] == "reward_model":
            yield f"{field}.source", function["source"]


def rewards_in(config: Mapping[str, Json]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The path and the fields of each reward: of the run itself, or of the pairs that it samples."""
    pairs = config.get("pairs")
    for path, parent in (("rewards", config), ("pairs.rewards", pairs if isinstance(pairs, dict) else {})):
        rewards: Any = parent.get("rewards")
        for index, function in enumerate(rewards["functions"] if rewards else ()):
            yield f"{path}.functions.{index}", function
