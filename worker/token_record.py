"""The per-token values of a step: what the learner fills in, and traces, metrics and group records read."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


class TokenRecord:
    """Values by name, each (R, T) on the CPU; T is the longest completion. NaN (False) where there is no token."""

    def __init__(self, mask_R_T: Tensor) -> None:
        self.mask = mask_R_T
        self._values: dict[str, Tensor] = {}

    def put(self, name: str, rows: Sequence[int], values_r_t: Tensor) -> None:
        """Put some rows' values in; they may be narrower than T."""
        values_r_t = values_r_t.detach().cpu()
        if name not in self._values:
            blank = False if values_r_t.dtype is torch.bool else math.nan
            self._values[name] = torch.full(self.mask.shape, blank, dtype=values_r_t.dtype)
        width = values_r_t.shape[1]
        kept = self.mask[list(rows), :width]
        self._values[name][list(rows), :width] = torch.where(kept, values_r_t, self._values[name][list(rows), :width])

    def get(self, name: str) -> Tensor | None:
        """The values of that name; None where they were not computed."""
        return self._values.get(name)

    def __getitem__(self, name: str) -> Tensor:
        return self._values[name]

    def row(self, name: str, row: int) -> Tensor | None:
        """One completion's values, as many as it has tokens."""
        values = self._values.get(name)
        return None if values is None else values[row][self.mask[row]]

    def mean(self, name: str) -> float:
        """The mean over all tokens."""
        return float(self._values[name][self.mask].double().mean())
