"""Gradients of parts of a step, held against each other: they come in turn, so that memory does not grow with their number."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

WHOLE_BYTES = 2**28
"""Vectors that fit into this together are kept whole until all are there; else they are projected."""
_PROJECTED = 2**16  # numbers at most
_CHUNK = 2**22


class Agreement:
    """The cosines between vectors that come one after the other.

    Where all of them do not fit, each is projected: every coordinate is added, with a random sign, to one of K numbers (a count sketch;
    Charikar, Chen and Farach-Colton, 2002). Inner products stay right in the mean; that of two unit vectors has the variance
    (1 + cos²) / K at most.
    """

    def __init__(self, count: int, size: int, device: torch.device, *, whole_bytes: int = WHOLE_BYTES) -> None:
        """`count` vectors of `size` coordinates."""
        whole = 4 * count * size <= whole_bytes
        self.projected = None if whole else max(2, min(_PROJECTED, whole_bytes // (4 * count)))
        """K; None where vectors are kept whole."""
        self._kept = torch.zeros(count, self.projected or size, device=device)
        self._norms = [0.0] * count

    @property
    def error(self) -> float | None:
        """The standard error of a cosine, at most; None where vectors are kept whole."""
        return None if self.projected is None else math.sqrt(2 / self.projected)

    def put(self, place: int, vector: Sequence[Tensor], norm: float) -> None:
        """Keep a vector that lies in several tensors, or what it is projected to."""
        self._norms[place] = norm
        if self.projected is None:
            torch.cat([part.flatten().float() for part in vector], out=self._kept[place])
        else:
            self._project(vector, self._kept[place], self.projected)

    def cosines(self, places: Sequence[int]) -> list[list[float | None]]:
        """Of each of these vectors with each other; None where one of the two is 0 or was never put."""
        kept = self._kept[list(places)]
        products = (kept @ kept.T).tolist()
        norms = [self._norms[place] for place in places]
        return [
            [
                None if not size else 1.0 if one == other else max(-1.0, min(1.0, product / size))
                for other, product in enumerate(row)
                for size in [norms[one] * norms[other]]
            ]
            for one, row in enumerate(products)
        ]

    @staticmethod
    def _project(vector: Sequence[Tensor], into_K: Tensor, count: int) -> None:
        """The same coordinates get the same places and signs every time."""
        draws = torch.Generator(into_K.device).manual_seed(0)
        for part in vector:
            flat = part.flatten()
            for start in range(0, len(flat), _CHUNK):
                chunk = flat[start : start + _CHUNK]
                drawn = torch.randint(2 * count, chunk.shape, generator=draws, device=chunk.device)
                into_K.index_add_(0, drawn >> 1, chunk.float() * ((drawn & 1) * 2 - 1))
