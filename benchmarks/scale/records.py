"""What was measured at scale, as it is kept in JSON: raw, so that every table can be made again from it."""

from pathlib import Path
from statistics import linear_regression, median, quantiles
from typing import Annotated

from pydantic import BaseModel, PlainSerializer

Seconds = Annotated[float, PlainSerializer(lambda value: round(value, 5))]


class Route(BaseModel):
    """One kind of request."""

    name: str
    seconds: list[Seconds]
    largest: int  # bytes of the largest answer

    @property
    def median(self) -> float:
        """Seconds."""
        return median(self.seconds)

    @property
    def p95(self) -> float:
        """Seconds that 95 of 100 requests stay below."""
        return quantiles(self.seconds, n=20, method="inclusive")[-1]


class View(BaseModel):
    """One view, opened by its address."""

    name: str
    seconds: list[Seconds]

    @property
    def median(self) -> float:
        """Seconds."""
        return median(self.seconds)


class Live(BaseModel):
    """Steps of a run under way: seconds from the end of each until the page shows it."""

    shown: list[Seconds]  # its number, in the head of the page
    drawn: list[Seconds]  # and all of the page anew, charts too


class Sample(BaseModel):
    """Memory at a moment of watching."""

    seconds: Seconds
    dashboard: int  # bytes, the processes' unique set
    backend: int
    steps: int  # reported so far


class Memory(BaseModel):
    """What watching a run costs over time."""

    since: float  # seconds of watching before those that count
    samples: list[Sample]

    def slope(self, whose: str) -> float:
        """MB a minute, by least squares."""
        counted = [sample for sample in self.samples if sample.seconds >= self.since]
        minutes = [sample.seconds / 60 for sample in counted]
        return linear_regression(minutes, [getattr(sample, whose) / 1e6 for sample in counted]).slope


class Made(BaseModel):
    """The database."""

    seconds: Seconds  # that making it took
    database: int  # bytes
    traces: int
    runs: int
    completions: int
    metrics: int  # values


class AtScale(BaseModel):
    """All parts; one that was not measured is None."""

    where: dict[str, str] = {}
    made: Made | None = None
    api: list[Route] | None = None
    views: list[View] | None = None
    live: Live | None = None
    memory: Memory | None = None

    @staticmethod
    def read(path: Path) -> "AtScale":
        """What was kept, or nothing yet."""
        return AtScale.model_validate_json(path.read_text()) if path.exists() else AtScale()

    def write(self, path: Path) -> None:
        """Keep it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.model_dump_json() + "\n")
