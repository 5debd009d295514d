"""What another clip range would do to the tokens of a completion whose trace was kept."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from backend.contract.groups import TokenTrace
from backend.contract.surrogate import Surrogate
from worker.algorithms.objective import clipped, surrogate_loss

Tokens: TypeAlias = NDArray[np.float32]


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
    ratio_1_T, logprob_1_T, old_1_T = map(_row, (trace.ratio, trace.logprob, trace.old_logprob))
    if advantage is None and trace.advantage is None:
        return None
    advantage_1_T = _row(trace.advantage or []) if advantage is None else np.full_like(ratio_1_T, advantage)
    low_1_T, high_1_T = clipped(surrogate, ratio_1_T, advantage_1_T)
    loss_1_T = surrogate_loss(surrogate, logprob_1_T, old_1_T, ratio_1_T, advantage_1_T, np.ones_like(ratio_1_T))
    return Traced(ratio_1_T[0], low_1_T[0], high_1_T[0], -loss_1_T[0])


def _row(values: list[float | None]) -> Tokens:
    """(1, T)."""
    return np.array([values], dtype=np.float32)
