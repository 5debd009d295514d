"""A curve of at most 40 points that grows with the run: each point is the mean of a stretch of steps.

When the stretches run out, neighbours are merged and the stretches double; so a point costs the same at step 10 and at
step 100,000, and the state fits into the run's row.
"""

from typing import TypedDict

POINTS = 40


class State(TypedDict):
    """`buckets` holds sum and count for each stretch of `stride` steps."""

    stride: int
    buckets: list[list[float]]


def empty() -> State:
    """No point yet."""
    return {"stride": 1, "buckets": []}


def add(state: State, step: int, value: float | None) -> State:
    """The state with one more value; None (not finite) leaves a gap where nothing else falls into its stretch."""
    stride, buckets = state["stride"], [list(bucket) for bucket in state["buckets"]]
    while step // stride >= POINTS:
        stride *= 2
        if len(buckets) % 2:
            buckets.append([0.0, 0])
        pairs = zip(buckets[::2], buckets[1::2], strict=True)
        buckets = [[left[0] + right[0], left[1] + right[1]] for left, right in pairs]
    index = step // stride
    buckets.extend([0.0, 0] for _ in range(index + 1 - len(buckets)))
    if value is not None:
        buckets[index] = [buckets[index][0] + value, buckets[index][1] + 1]
    return {"stride": stride, "buckets": buckets}


def points(state: State) -> list[float | None]:
    """The means, None where a stretch has no finite value."""
    return [total / count if count else None for total, count in state["buckets"]]
