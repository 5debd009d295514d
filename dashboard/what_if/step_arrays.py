"""A step's recorded numbers as arrays: P groups of G completions, NaN where a number is missing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import nan
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from backend.contract.groups import RewardScore
from backend.contract.inspection import CompletionScores, GroupScores
from backend.contract.reward import KL_PENALTY

Values: TypeAlias = NDArray[np.float64]
TRAINED_ON = ("live", "zero_variance", "unscored")
"""The states of groups that stood in the batch: neither replaced before the update, nor probes."""


@dataclass(frozen=True)
class StepArrays:
    """The groups of the batch, in their order, and their completions' numbers, each (P, G)."""

    groups: Sequence[GroupScores]
    raws: Sequence[Sequence[Mapping[str, float | None]]]  # of each completion, by the reward function's name

    @cached_property
    def rewards_P_G(self) -> Values:
        """The rewards as the estimator used them."""
        return self.of_completions(lambda one: one.reward)

    @cached_property
    def advantages_P_G(self) -> Values:
        """The advantages that trained."""
        return self.of_completions(lambda one: one.advantage)

    @cached_property
    def minus_kl_P_G(self) -> Values:
        """Minus the sum of a completion's KL, where the penalty is in the reward."""
        return self._of_function(KL_PENALTY)

    def of_completions(self, value: Callable[[CompletionScores], float | None]) -> Values:
        """A number of each completion, (P, G)."""
        return _padded([[value(one) for one in group.completions] for group in self.groups])

    def place_of(self, group_id: int) -> int | None:
        """Where the group stands; None where it was not in the batch."""
        return next((place for place, group in enumerate(self.groups) if group.id == group_id), None)

    def of_raws(self, value: Callable[[Mapping[str, float | None]], float | None]) -> Values:
        """A number made from each completion's raw rewards, (P, G)."""
        return _padded([[value(raw) for raw in row] for row in self.raws])

    def components(self, names: Sequence[str]) -> Values:
        """What these K reward functions gave, (P, G, K)."""
        return np.stack([self._of_function(name) for name in names], axis=-1)

    def _of_function(self, name: str) -> Values:
        return self.of_raws(lambda raw: raw.get(name))


def arrays_of(groups: Sequence[GroupScores]) -> StepArrays | None:
    """The arrays of those groups that were trained on; None where none was."""
    batch = [group for group in groups if group.state in TRAINED_ON and group.completions]
    if not batch:
        return None
    return StepArrays(batch, [[_raws(completion.rewards) for completion in group.completions] for group in batch])


def _raws(scores: Sequence[RewardScore]) -> dict[str, float | None]:
    return {score.name: score.raw for score in scores}


def _padded(rows: Sequence[Sequence[float | None]]) -> Values:
    """(P, G); a shorter group is filled with NaN, which counts for nothing."""
    longest = max(map(len, rows))
    return np.array([[*row, *[nan] * (longest - len(row))] for row in rows], dtype=np.float64)
