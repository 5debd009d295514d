"""The per-token values of a step: what the learner fills in, and traces, metrics and group records read."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class TokenRecord:
    """Values by name, each (R, T) on the CPU; T is the longest completion. NaN (False) where there is no token.

    A completion that was left out of the pass has no values: that is not known of it, and never 0 or False. What reads whole
    columns here does so without torch, whose threads belong to the model.
    """

    def __init__(self, mask_R_T: Tensor) -> None:
        self.mask = mask_R_T
        self._values: dict[str, Tensor] = {}
        self._known_R: dict[str, Tensor] = {}

    def put(self, name: str, rows: Sequence[int], values_r_t: Tensor) -> None:
        """Put some rows' values in; they may be narrower than T."""
        values_r_t, rows = values_r_t.detach().cpu(), list(rows)
        blank = False if values_r_t.dtype is torch.bool else math.nan
        if name not in self._values:
            self._values[name] = torch.full(self.mask.shape, blank, dtype=values_r_t.dtype)
            self._known_R[name] = torch.zeros(len(self.mask), dtype=torch.bool)
        width = values_r_t.shape[1]
        self._values[name][rows, :width] = values_r_t.masked_fill(~self.mask[rows, :width], blank)
        self._known_R[name][rows] = True

    def part(self, rows: Sequence[int]) -> dict[str, tuple[list[int], Tensor]]:
        """What is known of these rows: by name, which of them have values, and those."""
        known = {name: [row for row in rows if known_R[row]] for name, known_R in self._known_R.items()}
        return {name: (some, self._values[name][some]) for name, some in known.items() if some}

    def get(self, name: str) -> Tensor | None:
        """The values of that name; None where they were computed for no completion."""
        return self._values.get(name)

    def __getitem__(self, name: str) -> Tensor:
        return self._values[name]

    def known(self, name: str) -> NDArray[np.bool_]:
        """Which completions have values of that name. (R,)"""
        known_R = self._known_R.get(name)
        return np.zeros(len(self.mask), dtype=bool) if known_R is None else known_R.numpy()

    def flat(self, name: str, rows: Sequence[int] | None = None) -> NDArray[np.generic]:
        """The values of all tokens of the completions that have some (or of these rows among them), one after the other."""
        chosen = np.arange(len(self.mask)) if rows is None else np.asarray(rows, dtype=int)
        chosen = chosen[self.known(name)[chosen]]
        values = self._values.get(name)
        return np.empty(0) if values is None else values.numpy()[chosen][self.mask.numpy()[chosen]]

    def sums(self, name: str) -> NDArray[np.float64]:
        """The sum over each completion's tokens; NaN where it has no values. (R,)"""
        values = self._values.get(name)
        if values is None:
            return np.full(len(self.mask), math.nan)
        sums_R = np.where(self.mask.numpy(), values.numpy(), 0).sum(-1, dtype=np.float64)
        return np.where(self.known(name), sums_R, math.nan)

    def means(self, name: str) -> NDArray[np.float64]:
        """The mean over each completion's tokens; NaN where it has no values. (R,)"""
        means_R: NDArray[np.float64] = self.sums(name) / self.mask.numpy().sum(-1)
        return means_R

    def mean(self, name: str) -> float:
        """The mean over all tokens that have a value; NaN where none has."""
        values = self.flat(name)
        return float(values.mean(dtype=np.float64)) if len(values) else math.nan
