"""The rewards in a stored configuration, whatever its kind, and what they need of a worker."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backend.contract.base import Json


@dataclass(frozen=True)
class Needs:
    """Judges and Python functions, with the fields that name them."""

    judges: Mapping[str, str]
    functions: Mapping[str, str]

    def met_by(self, judges: Sequence[str], functions: Sequence[str]) -> bool:
        """Whether a worker that offers these has all."""
        return self.judges.keys() <= set(judges) and self.functions.keys() <= set(functions)


def needs_of(config: Mapping[str, Json]) -> Needs:
    """What a worker must have for the configuration's rewards."""
    named = list(rewards_in(config))
    return Needs(
        judges={one["endpoint"]: f"{field}.endpoint" for field, one in named if one["kind"] == "judge"},
        functions={one["function"]: f"{field}.function" for field, one in named if one["kind"] == "python"},
    )


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
