"""A share of a few judgements, and how far it can be trusted."""

import math

_Z = 1.959964  # of the central 95 % of the normal distribution


def wilson(hits: int, n: int) -> tuple[float, float]:
    """The 95 % score interval of a share of `hits` in `n` > 0 (Wilson, 1927): within 0 and 1, also for 0 or n hits."""
    share = hits / n
    centre = share + _Z * _Z / (2 * n)
    half = _Z * math.sqrt(share * (1 - share) / n + _Z * _Z / (4 * n * n))
    scale = 1 + _Z * _Z / n
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)
