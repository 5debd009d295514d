"""What a person may change about a run's groups, and what the run itself had."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from backend.contract.advantage import Advantage
from backend.contract.algorithm import Algorithm
from backend.contract.base import Json
from backend.contract.reward import Rewards
from backend.contract.surrogate import Surrogate
from dashboard.components.stored import number_at
from dashboard.form.paths import get

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Settings:
    """How rewards become advantages and advantages a loss."""

    advantage: Advantage
    surrogate: Surrogate
    rewards: Rewards | None  # weights and gates; None where the run had no reward functions
    beta: float


@dataclass(frozen=True)
class Own:
    """What the run was stored with."""

    algorithm: Algorithm
    rewards: Rewards | None
    max_new_tokens: int

    @property
    def settings(self) -> Settings:
        """The run's values of what may be changed."""
        return Settings(self.algorithm.advantage, self.algorithm.surrogate, self.rewards, self.algorithm.kl.beta)

    @property
    def penalised(self) -> bool:
        """Whether the KL penalty is in the reward, and so moves advantages."""
        return self.measured and self.algorithm.kl.placement == "reward"

    @property
    def measured(self) -> bool:
        """Whether the KL to the reference was measured: with β = 0 there is no penalty, and no pass for it."""
        return self.algorithm.kl.beta > 0

    @property
    def from_critic(self) -> bool:
        """Whether the advantages came from a learned value of each token, which no reward can replace."""
        return self.algorithm.advantage.kind == "gae"


def read_own(config: Mapping[str, Json]) -> Own | None:
    """The settings of a stored configuration, defaults where it has none; None where this version cannot read them."""
    try:
        algorithm = _read(Algorithm, config, "algorithm") or Algorithm()
        rewards = _read(Rewards, config, "rewards")
    except ValidationError:
        return None
    return Own(algorithm, rewards, int(number_at(config, "sampling.max_new_tokens", 1)))


def _read(model: type[M], config: Mapping[str, Json], path: str) -> M | None:
    value = get(dict(config), path)
    return None if value is None else model.model_validate(value)
