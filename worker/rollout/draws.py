"""Keyed randomness: every draw is a function of (seed, stream, step, group, completion, position), and of nothing else.

So a completion does not depend on how rows are batched, on which rows ended before it, or on a resume.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

_STREAMS = {"train": 1, "eval": 2, "sample": 3, "probe": 4}


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word


_STEP = _signed(0x9E3779B97F4A7C15)
_FACTORS = _signed(0xBF58476D1CE4E5B9), _signed(0x94D049BB133111EB)


def _shifted(words: Tensor, bits: int) -> Tensor:
    """Logical shift to the right: torch's own keeps the sign."""
    shifted: Tensor = (words >> bits) & (2 ** (64 - bits) - 1)
    return shifted


def _mix(words: Tensor) -> Tensor:
    """SplitMix64's finaliser (Steele, Lea and Flood, 2014), modulo 2**64: every bit of the input moves every bit of the output."""
    words = words + _STEP
    words = (words ^ _shifted(words, 30)) * _FACTORS[0]
    words = (words ^ _shifted(words, 27)) * _FACTORS[1]
    mixed: Tensor = words ^ _shifted(words, 31)
    return mixed


@dataclass(frozen=True)
class Draws:
    """The random numbers of one rollout."""

    seed: int
    stream: Literal["train", "eval", "sample", "probe"]
    step: int = 0

    def keys(self, groups_R: Tensor, completions_R: Tensor) -> Tensor:
        """The key of each of R completions, int64 (R,)."""
        key = torch.zeros(1, dtype=torch.int64)
        for part in (self.seed, _STREAMS[self.stream], self.step):
            key = _mix(key ^ part)
        return _mix(_mix(key ^ groups_R) ^ completions_R)


def uniforms(keys_R: Tensor, positions_R: Tensor) -> Tensor:
    """A number in [0, 1) for each completion at its position, float32 (R,), computed where the keys are."""
    # 24 bits are what a float32 in [0, 1) can hold exactly.
    numbers_R: Tensor = _shifted(_mix(keys_R ^ positions_R), 40).to(torch.float32) * 2.0**-24
    return numbers_R
