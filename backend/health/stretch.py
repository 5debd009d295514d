"""A metric over some steps, and what rules ask of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import mean, median_high, median_low


@dataclass(frozen=True)
class Stretch:
    """A metric by step, ascending; None where it was not finite. What is asked of it looks at the finite values alone."""

    values: Mapping[int, float | None]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def finite(self) -> dict[int, float]:
        """The finite values, by step."""
        return {step: value for step, value in self.values.items() if value is not None}

    @property
    def missing(self) -> list[int]:
        """The steps at which it was logged and not finite."""
        return [step for step, value in self.values.items() if value is None]

    @property
    def mean(self) -> float | None:
        """Of the finite values; None where there are none. Counted in fractions: the sum of large floats may be infinite."""
        return mean(finite) if (finite := self.finite.values()) else None

    @property
    def median(self) -> float | None:
        """Of the finite values; None where there are none."""
        finite = self.finite.values()
        return mean((median_low(finite), median_high(finite))) if finite else None

    @property
    def peak(self) -> int | None:
        """The step of the highest value, the latest of several."""
        return max(finite, key=lambda step: (finite[step], step)) if (finite := self.finite) else None

    def last(self, count: int) -> "Stretch":
        """Its last points."""
        return Stretch(dict(list(self.values.items())[-count:]))
