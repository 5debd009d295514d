"""Keyed randomness: every draw is a function of (seed, stream, step, group, completion, position), and of nothing else.

So a completion does not depend on how rows are batched, on which rows ended before it, or on a resume.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

_STREAMS = {"train": 1, "eval": 2, "sample": 3}


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser (Steele, Lea and Flood, 2014): every bit of the input moves every bit of the output."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


@dataclass(frozen=True)
class Draws:
    """The random numbers of one rollout."""

    seed: int
    stream: Literal["train", "eval", "sample"]
    step: int = 0

    def uniforms(
        self, groups_R: NDArray[np.int64], completions_R: NDArray[np.int64], first: int, count: int
    ) -> NDArray[np.float32]:
        """Uniform numbers in [0, 1) for R rows at the positions first … first + count − 1, shape (R, count)."""
        with np.errstate(over="ignore"):  # the arithmetic is modulo 2**64 by design
            key = np.zeros(1, dtype=np.uint64)
            for part in (self.seed, _STREAMS[self.stream], self.step):
                key = _mix(key ^ np.uint64(part))
            key_R = _mix(_mix(key ^ groups_R.astype(np.uint64)) ^ completions_R.astype(np.uint64))
            positions_T = np.arange(first, first + count, dtype=np.uint64)
            words_R_T = _mix(key_R[:, None] ^ positions_T[None, :])
        # 24 bits are what a float32 in [0, 1) can hold exactly.
        return ((words_R_T >> np.uint64(40)).astype(np.float64) * 2.0**-24).astype(np.float32)
