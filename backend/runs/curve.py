"""A curve of at most 40 points that grows with the run: each point is the mean of a stretch of steps.

When the stretches run out, neighbours are merged and the stretches double; so a point costs the same at step 10 and at step
100,000, and the state fits into the run's row.
"""

from typing import TypedDict

POINTS = 40
Mean = list[float]  # the mean of a stretch, and of how many values


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
            means.append([0.0, 0])
        means = [_joined(*pair) for pair in zip(means[::2], means[1::2], strict=True)]
    index = step // stride
    means.extend([0.0, 0] for _ in range(index + 1 - len(means)))
    if value is not None:
        means[index] = _joined(means[index], [value, 1])
    return {"stride": stride, "means": means}


def points(state: Curve) -> list[float | None]:
    """The means; None for a stretch without a finite value."""
    return [mean if count else None for mean, count in _means(state)]


def _means(state: Curve) -> list[Mean]:
    old: list[Mean] = state.get("buckets", [])  # type: ignore[assignment]  # a key that is no longer written
    return state.get("means") or [[total / count if count else 0.0, count] for total, count in old]


def _joined(left: Mean, right: Mean) -> Mean:
    """Both stretches as one; not by way of their sum, which may be infinite though the mean is not."""
    if not left[1] or not right[1]:
        return left if left[1] else right
    count = left[1] + right[1]
    mean = left[0] * (left[1] / count) + right[0] * (right[1] / count)
    low, high = sorted((left[0], right[0]))
    return [min(max(mean, low), high), count]  # the mean of equal values is that value, whatever was rounded
