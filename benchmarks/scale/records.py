"""What was measured at scale, kept raw in JSON, and its tables in Markdown."""

from statistics import linear_regression, median, quantiles
from typing import Annotated

from pydantic import BaseModel, PlainSerializer
from results.page import Kept, table

Seconds = Annotated[float, PlainSerializer(lambda value: round(value, 5))]


class View(BaseModel):
    """One view, opened by its address."""

    name: str
    seconds: list[Seconds]

    @property
    def median(self) -> float:
        """Seconds."""
        return median(self.seconds)


class Route(View):
    """One kind of request."""

    largest: int  # bytes of the largest answer

    @property
    def p95(self) -> float:
        """Seconds that 95 of 100 requests stay below."""
        return quantiles(self.seconds, n=20, method="inclusive")[-1]


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


class AtScale(Kept):
    """All parts; one that was not measured is None."""

    where: dict[str, str] = {}
    made: Made | None = None
    api: list[Route] | None = None
    views: list[View] | None = None
    live: Live | None = None
    memory: Memory | None = None


def tables(measured: AtScale) -> str:
    """What was measured, in the order of the page."""
    parts = []
    if made := measured.made:
        parts.append(
            f"The database: {made.runs} runs, {made.completions:,} completions, {made.metrics:,} values of metrics; "
            f"{made.database / 1e9:.2f} GB, and {made.traces / 1e9:.2f} GB of token traces beside it. Making it took "
            f"{made.seconds / 60:.1f} minutes."
        )
    if measured.views:
        rows = [(view.name, f"{view.median:.2f} s", f"{max(view.seconds):.2f} s") for view in measured.views]
        parts.append(f"### Opening a view\n\n{table(('view', 'median', 'slowest'), rows)}")
    parts += [_live(measured.live)] if measured.live else []
    parts += [_memory(measured.memory)] if measured.memory else []
    parts += [_api(measured.api)] if measured.api else []
    return "\n\n".join([*parts, f"Measured {', '.join(measured.where.values())}."])


def _live(live: Live) -> str:
    rows = [
        (name, f"{median(seconds):.2f} s", f"{max(seconds):.2f} s")
        for name, seconds in (
            ("the step's number in the head of the page", live.shown),
            ("every chart drawn anew", live.drawn),
        )
    ]
    header = (f"after the end of a step ({len(live.shown)} steps)", "median", "slowest")
    return f"### A run under way\n\n{table(header, rows)}"


def _memory(memory: Memory) -> str:
    last = memory.samples[-1]
    rows = [
        (whose, f"{getattr(memory.samples[0], whose) / 1e6:.0f} MB", f"{getattr(last, whose) / 1e6:.0f} MB",
         f"{memory.slope(whose):+.3f} MB")
        for whose in ("dashboard", "backend")
    ]  # fmt: skip
    since, until = memory.since / 60, last.seconds / 60
    header = ("process", "at the start", "at the end", f"change per minute, minutes {since:.0f} to {until:.0f}")
    return f"### Memory while somebody watches\n\n{table(header, rows)}\n\n{last.steps} steps came in that time."


def _api(routes: list[Route]) -> str:
    rows = [
        (
            route.name,
            f"{1000 * route.median:.1f} ms",
            f"{1000 * route.p95:.1f} ms",
            f"{1000 * max(route.seconds):.1f} ms",
            f"{route.largest / 1000:,.1f} kB",
        )
        for route in routes
    ]
    count = min(len(route.seconds) for route in routes)
    header = ("request", "median", "p95", "slowest", "largest answer")
    return f"### Requests\n\nEach {count} times, the slowest first.\n\n{table(header, rows)}"
