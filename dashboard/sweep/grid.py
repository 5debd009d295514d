"""A grid: every value of each field with every value of the others."""

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod

from backend.contract.base import Json


def size(values: Mapping[str, Sequence[Json]]) -> int:
    """How many points the grid has; without a field it has none."""
    return prod(len(some) for some in values.values()) if values else 0


def grid(values: Mapping[str, Sequence[Json]]) -> list[dict[str, Json]]:
    """The points, the last field's values changing first."""
    return [dict(zip(values, point, strict=True)) for point in product(*values.values())] if values else []
