"""What a stored configuration needs of the worker that takes it, whatever its kind."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from backend.contract.base import Json
from backend.runs.rewards import rewards_in


class Offers(Protocol):
    """What a worker says it has."""

    @property
    def judges(self) -> Sequence[str]:
        """The judges that its operator named."""

    @property
    def reward_functions(self) -> Sequence[str]:
        """The Python functions that its operator allowed."""

    @property
    def engines(self) -> Sequence[str]:
        """What it can sample with."""


@dataclass(frozen=True)
class Needs:
    """Judges and Python functions, with the fields that name them, and the sampling engine."""

    judges: Mapping[str, str]
    functions: Mapping[str, str]
    engine: str

    def met_by(self, worker: Offers) -> bool:
        """Whether the worker has all."""
        return (
            self.judges.keys() <= set(worker.judges)
            and self.functions.keys() <= set(worker.reward_functions)
            and self.engine in worker.engines
        )


def needs_of(config: Mapping[str, Json]) -> Needs:
    """What a worker must have for the configuration."""
    named = list(rewards_in(config))
    sampling: Any = config.get("sampling") or {}
    return Needs(
        judges={one["endpoint"]: f"{field}.endpoint" for field, one in named if one["kind"] == "judge"},
        functions={one["function"]: f"{field}.function" for field, one in named if one["kind"] == "python"},
        engine=sampling.get("engine", "native"),
    )
