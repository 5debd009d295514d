"""Gradients of parts of a step, held against each other: they come in turn, so that memory does not grow with their number."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

WHOLE_BYTES = 2**28
"""Vectors that fit into this together are kept whole until all are there; else they are projected."""
_PROJECTED = 65_521  # numbers at most; a prime, so that no width of a layer divides it


class Agreement:
    """The cosines between vectors that come one after the other.

    Where all of them do not fit, each is projected: coordinate i is added, with a random sign, to number i mod K (a count sketch;
    Charikar, Chen and Farach-Colton, 2002). Inner products stay right in the mean, and that of two unit vectors has at most the
    variance 2 Σ Aₖ Bₖ, where Aₖ and Bₖ are the squares of their coordinates that meet in number k: about 2 / K.
    """

    def __init__(
        self, count: int, like: Sequence[Tensor], device: torch.device, *, whole_bytes: int = WHOLE_BYTES
    ) -> None:
        """`count` vectors that lie in tensors like these."""
        self._sizes = [one.numel() for one in like]
        size = sum(self._sizes)
        whole = 4 * count * size <= whole_bytes
        self.projected = None if whole else max(2, min(_PROJECTED, whole_bytes // (8 * count)))
        """K; None where vectors are kept whole."""
        self._kept = torch.zeros(count, self.projected or size, device=device)
        self._squares = None if whole else torch.zeros_like(self._kept)
        self._norms = [0.0] * count
        draws = torch.Generator(device).manual_seed(0)
        drawn = (torch.randint(2, one.shape, generator=draws, device=device, dtype=torch.int8) for one in like)
        self._signs = [] if whole else [one.mul_(2).sub_(1) for one in drawn]

    def put(self, place: int, vector: Sequence[Tensor | None], norm: float) -> None:
        """Keep a vector, or what it is projected to; a part that is None is 0."""
        self._norms[place] = norm
        start = 0
        for number, (part, size) in enumerate(zip(vector, self._sizes, strict=True)):
            if part is None:
                start += size
                continue
            if self._squares is None:
                self._kept[place, start : start + size] = part.flatten()
            else:
                flat = part.flatten().float()
                _fold(flat * self._signs[number].flatten(), self._kept[place], start)
                _fold(flat.square(), self._squares[place], start)
            start += size

    def cosines(self, places: Sequence[int]) -> list[list[float | None]]:
        """Of each of these vectors with each other; None where one of the two is 0 or was never put."""
        kept = self._kept[list(places)]
        products = (kept @ kept.T).tolist()
        norms = [self._norms[place] for place in places]
        return [
            [
                None if not 0 < size < math.inf else 1.0 if one == other else max(-1.0, min(1.0, product / size))
                for other, product in enumerate(row)
                for size in [norms[one] * norms[other]]
            ]
            for one, row in enumerate(products)
        ]

    def error(self, places: Sequence[int]) -> float | None:
        """The standard error of a cosine of these, at most; None where vectors are kept whole."""
        if self._squares is None:
            return None
        shares = [self._squares[place] / self._norms[place] ** 2 for place in places if self._norms[place]]
        if len(shares) < 2:
            return 0.0
        stacked = torch.stack(shares)
        met = (stacked @ stacked.T).fill_diagonal_(0.0)
        return math.sqrt(2 * float(met.max()))


def _fold(flat: Tensor, into_K: Tensor, start: int) -> None:
    """Add coordinate i to number (start + i) mod K."""
    count = len(into_K)
    rows, rest = divmod(len(flat), count)
    folded = flat[: rows * count].view(rows, count).sum(0) if rows else flat.new_zeros(count)
    folded[:rest] += flat[rows * count :]
    into_K += folded.roll(start % count)
