"""What changes for the completions and groups of a step: signs, counts, dead groups."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from backend.contract.groups import GroupState
from backend.contract.inspection import CompletionScores, GroupScores
from dashboard.algorithm.recomputation import Recomputed, StepArrays, Values

SIGNS = {1: "reinforced", 0: "0", -1: "discouraged"}


class Flip(NamedTuple):
    """A completion whose advantage changes its sign, also to 0 or from it."""

    group: GroupScores
    completion: CompletionScores
    reward: float | None  # the recomputed one
    before: float
    after: float

    @property
    def words(self) -> str:
        """reinforced → discouraged."""
        return f"{SIGNS[sign(self.before)]} → {SIGNS[sign(self.after)]}"


class Tally(NamedTuple):
    """A step in counts."""

    reinforced: int
    discouraged: int
    zero: int
    dead: int  # groups in which all rewards are equal
    comparable: int  # groups with two scored completions or more, of which those are a part

    @property
    def dead_share(self) -> float | None:
        """None where nothing can be compared."""
        return self.dead / self.comparable if self.comparable else None


def sign_flips(step: StepArrays, after: Recomputed) -> Iterator[Flip]:
    """Every completion whose sign changes, in the step's order."""
    changed = np.sign(step.advantages_P_G) != np.sign(after.advantages_P_G)
    for p, g in np.argwhere(changed & ~np.isnan(step.advantages_P_G)).tolist():
        group, reward = step.groups[p], float(after.rewards_P_G[p, g])
        yield Flip(
            group,
            group.completions[g],
            None if np.isnan(reward) else reward,
            float(step.advantages_P_G[p, g]),
            float(after.advantages_P_G[p, g]),
        )


def tally(step: StepArrays, advantages_P_G: Values, states: Sequence[GroupState]) -> Tally:
    """The counts under these advantages and states; completions without a stored advantage do not count."""
    signs = np.sign(advantages_P_G[~np.isnan(step.advantages_P_G)])
    count = Counter(states)
    return Tally(
        int((signs > 0).sum()),
        int((signs < 0).sum()),
        int((signs == 0).sum()),
        count["zero_variance"],
        count["zero_variance"] + count["live"],
    )


def sign(value: float) -> int:
    """1, 0 or −1."""
    return (value > 0) - (value < 0)
