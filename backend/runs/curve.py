"""A curve of at most 40 points that grows with the run: each point is the mean of a stretch of steps.

When the stretches run out, neighbours are merged and the stretches double; so a point costs the same at step 10 and at step
100,000, and the state fits into the run's row.
"""

from itertools import pairwise
from typing import TypedDict

POINTS = 40
# the mean of a stretch, and of how many values; None for a stretch in which nothing was logged
Mean = list[float] | None


class Curve(TypedDict):
    """A point for each stretch of `stride` steps. What was stored by earlier versions has `buckets` instead: sum and count."""

    stride: int
    means: list[Mean]


def empty() -> Curve:
    """No point yet."""
    return {"stride": 1, "means": []}


def with_value(state: Curve, step: int, value: float | None) -> Curve:
    """The state with one more value; None (not finite) leaves a gap if nothing else falls into its stretch."""
    stride, means = state["stride"], list(_means(state))
    while step // stride >= POINTS:
        stride *= 2
        if len(means) % 2:
            means.append(None)
        means = [_joined(*pair) for pair in zip(means[::2], means[1::2], strict=True)]
    index = step // stride
    means.extend(None for _ in range(index + 1 - len(means)))
    means[index] = _joined(means[index], [0.0, 0] if value is None else [value, 1])
    return {"stride": stride, "means": means}


def points(state: Curve) -> list[float | None]:
    """The means; None for a stretch whose values were not finite. One in which nothing was logged lies between its neighbours."""
    means = _means(state)
    found = [mean[0] if mean and mean[1] else None for mean in means]
    for before, after in pairwise(place for place, mean in enumerate(means) if mean):
        low, high = found[before], found[after]
        if low is not None and high is not None:
            for place in range(before + 1, after):
                share = (place - before) / (after - before)
                found[place] = low * (1 - share) + high * share
    return found


def _means(state: Curve) -> list[Mean]:
    old: list[list[float]] = state.get("buckets", [])  # type: ignore[assignment]  # a key that is no longer written
    return state.get("means") or [[total / count if count else 0.0, count] for total, count in old]


def _joined(left: Mean, right: Mean) -> Mean:
    """Both stretches as one; not by way of their sum, which may be infinite though the mean is not."""
    if not left or not right:
        return left or right
    if not left[1] or not right[1]:
        return left if left[1] else right
    count = left[1] + right[1]
    mean = left[0] * (left[1] / count) + right[0] * (right[1] / count)
    low, high = sorted((left[0], right[0]))
    return [min(max(mean, low), high), count]  # the mean of equal values is that value, whatever was rounded
