"""What changes for the completions and groups of a step, and for kept tokens: signs, counts, dead groups, clipped tokens."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from backend.contract.groups import GroupState, TokenTrace
from backend.contract.inspection import CompletionScores, GroupScores
from backend.contract.surrogate import Surrogate
from dashboard.algorithm.recomputation import Recomputed, StepArrays, Values
from dashboard.format import percent
from worker.algorithms.objective import clipped, surrogate_loss

SIGNS = {1: "reinforced", 0: "0", -1: "discouraged"}
Tokens: TypeAlias = NDArray[np.float32]


class Flip(NamedTuple):
    """A completion whose advantage changes its sign, also to 0 or from it."""

    group: GroupScores
    completion: CompletionScores
    reward: float | None  # the recomputed one
    before: float
    after: float


class Tally(NamedTuple):
    """A step in counts."""

    reinforced: int
    discouraged: int
    zero: int
    dead: int  # groups in which all rewards are equal
    comparable: int  # groups with two scored completions or more, of which those are a part

    @property
    def dead_in_words(self) -> str:
        """5 of 16, 31 %."""
        if not self.comparable:
            return "none can be compared"
        return f"{self.dead} of {self.comparable}, {percent(self.dead / self.comparable)}"


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


def pushed(before: float, after: float) -> str:
    """reinforced → discouraged; empty if the sign stays."""
    old, new = (SIGNS[(value > 0) - (value < 0)] for value in (before, after))
    return "" if old == new else f"{old} → {new}"


@dataclass(frozen=True)
class Traced:
    """A completion's tokens under a surrogate, each (T,)."""

    ratio: Tokens
    low: NDArray[np.bool_]  # where the surrogate's weight is cut from below
    high: NDArray[np.bool_]  # and from above
    surrogate: Tokens  # what is maximised for the token: minus its term of the loss


def traced(trace: TokenTrace, surrogate: Surrogate, advantage: float | None) -> Traced | None:
    """The tokens of the last pass under a surrogate, with one advantage, or with the trace's own where that is None.

    In float32, as the trainer computes them. None where the completion passed through no model, or no ratio was kept.
    """
    if not trace.ratio or trace.logprob is None or trace.old_logprob is None:
        return None
    if advantage is None and trace.advantage is None:
        return None
    of = partial(_row, trace.trained)
    ratio_1_T, logprob_1_T, old_1_T = map(of, (trace.ratio, trace.logprob, trace.old_logprob))
    advantage_1_T = of(trace.advantage or []) if advantage is None else np.full_like(ratio_1_T, advantage)
    low_1_T, high_1_T = clipped(surrogate, ratio_1_T, advantage_1_T)
    loss_1_T = surrogate_loss(surrogate, logprob_1_T, old_1_T, ratio_1_T, advantage_1_T, np.ones_like(ratio_1_T))
    return Traced(ratio_1_T[0], low_1_T[0], high_1_T[0], -loss_1_T[0])


def _row(trained: list[bool] | None, values: list[float | None]) -> Tokens:
    """(1, T), of the tokens that the loss counts."""
    counted = values if trained is None else list(compress(values, trained))
    return np.array([counted], dtype=np.float32)
