"""Is the power right that a comparison says? Against whole comparisons that are simulated, and judged, by code of its own.

    python benchmarks/power.py [--cases 1000] [--write]      # about a minute

Nothing here calls the product's test: seeds are drawn one by one, intervals are computed from them, and Student's quantiles come from
adding up his density. Pass rates are binomial, so they are neither normal nor continuous.
"""

import math
import sys
import time
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))  # also from the command line
from results.page import MEASURED, PAGE, Kept, command_line, show_tables, stack, table, where

from dashboard.charts.power import power, spread_interval

Array = NDArray[np.float64]
SEEDS = (3, 4, 5, 8, 12, 20, 40)
STEP = 1e-3  # of the sum over Student's density
RATE, ITEMS = 0.6, (50, 500)  # of the pass rates, and held-out prompts


class Case(NamedTuple):
    """Two settings whose means differ by `effect`, with so-and-so much luck in each seed; `items` 0: normal values."""

    seeds: int
    effect: float
    paired: bool
    spreads: tuple[float, float] = (1.0, 1.0)  # of each setting's values, beside what a seed does to both
    items: int = 0


def normal_cases() -> Iterator[Case]:
    """Differences of half a standard deviation to three of them; unpaired ones also with unequal spreads."""
    for seeds, effect in product(SEEDS, (0.5, 1.0, 2.0, 3.0)):
        yield Case(seeds, effect, paired=True)
        yield Case(seeds, effect, paired=False)
        yield Case(seeds, effect, paired=False, spreads=(0.3, 1.4))


def pass_rates() -> Iterator[Case]:
    """Of success rates that vary from seed to seed by 0.04 in each setting."""
    for seeds, effect, paired, items in product((3, 5, 8, 20), (0.03, 0.1), (True, False), ITEMS):
        yield Case(seeds, effect, paired, (0.04, 0.04), items)


@cache
def critical(degrees: int) -> float:
    """Between minus and plus this value lie 95 % of Student's t: his density, added up."""
    x = np.arange(0, 16, STEP)
    constant = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2) - 0.5 * math.log(degrees * math.pi)
    density = np.exp(constant - (degrees + 1) / 2 * np.log1p(x**2 / degrees))
    below = np.cumsum((density[1:] + density[:-1]) / 2 * STEP)
    return float(np.interp(0.475, below, x[1:]))


def drawn(case: Case, count: int, random: np.random.Generator) -> tuple[Array, Array]:
    """The values of both settings, (count, seeds) each. With the same seeds, what a seed does to both is the same."""
    shape = (count, case.seeds)
    common = random.normal(scale=max(case.spreads), size=shape)
    values = []
    for gain, spread in zip((case.effect, 0.0), case.spreads, strict=True):
        luck = random.normal(scale=spread, size=shape) + (common if case.paired else 0)
        if case.items:
            rates = np.clip(RATE + gain + luck, 0, 1)
            values.append(random.binomial(case.items, rates) / case.items)
        else:
            values.append(gain + luck)
    return values[0], values[1]


def told_apart(case: Case, mine: Array, theirs: Array) -> float:
    """The share of comparisons in which the first setting is called higher. If all of a comparison's values are equal, there is no verdict."""
    n = case.seeds
    if case.paired:
        differences = mine - theirs
        errors = differences.var(axis=1, ddof=1) / n
        quantiles = np.full(len(errors), critical(n - 1))
    else:
        parts = [one.var(axis=1, ddof=1) / n for one in (mine, theirs)]
        errors = parts[0] + parts[1]
        with np.errstate(invalid="ignore"):
            degrees = errors**2 / (parts[0] ** 2 + parts[1] ** 2) * (n - 1)
        quantiles = np.array([critical(math.floor(one + 1e-9)) if one == one else math.inf for one in degrees])
    gains = mine.mean(axis=1) - theirs.mean(axis=1)
    with np.errstate(invalid="ignore"):
        return float(np.mean((gains > quantiles * np.sqrt(errors)) & (errors > 1e-18)))


def said(case: Case, random: np.random.Generator) -> float:
    """The power that the product says, for the spread that a great many seeds of this case have, and for its difference."""
    mine, theirs = drawn(case._replace(seeds=2), 200_000, random)
    samples = [mine - theirs] if case.paired else [mine, theirs]
    effect = float(mine.mean() - theirs.mean())  # rates end at 1
    return power(effect, tuple(float(one.var()) for one in samples), (case.seeds,) * len(samples))


class Row(NamedTuple):
    """What was said of a case, and what came of it."""

    case: Case
    said: float
    simulated: float

    @property
    def apart(self) -> float:
        """In points of a hundred."""
        return 100 * abs(self.said - self.simulated)


def rows(cases: Iterator[Case], count: int, random: np.random.Generator) -> list[Row]:
    return [Row(case, said(case, random), told_apart(case, *drawn(case, count, random))) for case in cases]


def covered(seeds: int, paired: bool, count: int, random: np.random.Generator) -> float:
    """How often the interval of the spread holds the true one, so that the range of seeds holds the right number."""
    case = Case(seeds, 0.0, paired)
    mine, theirs = drawn(case, count, random)
    samples = [mine - theirs] if paired else [mine, theirs]
    # the variances of both settings; what a seed does to both cancels, or is not there
    true, inside = sum(1.0 for _ in "ab"), 0
    for variances in zip(*(one.var(axis=1, ddof=1) for one in samples), strict=True):
        low, high = spread_interval([float(one) for one in variances], [seeds] * len(samples))
        inside += low * sum(variances) <= true <= high * sum(variances)
    return inside / count


class Measured(Kept):
    """Points apart, by kind of comparison and seeds; and how often the range of seeds was right."""

    conditions: dict[str, str] = {}
    cases: int = 0
    apart: dict[str, dict[int, float]] = {}  # the largest of all effects and spreads
    compared: dict[str, int] = {}
    covered: dict[str, dict[int, float]] = {}


KINDS = {True: "paired", False: "unpaired"}


def measure(count: int) -> Measured:
    random = np.random.default_rng(0)
    apart: dict[str, dict[int, float]] = {}
    compared: dict[str, int] = {}
    for row in rows(normal_cases(), count, random) + rows(pass_rates(), count, random):
        of = f"pass rates of {row.case.items} prompts" if row.case.items else "normal values"
        kind = f"{of}, {KINDS[row.case.paired]}"
        seen = apart.setdefault(kind, {})
        seen[row.case.seeds] = max(seen.get(row.case.seeds, 0.0), row.apart)
        compared[kind] = compared.get(kind, 0) + 1
    held = {
        f"the range of seeds, {word}": {seeds: covered(seeds, paired, count, random) for seeds in (2, *SEEDS)}
        for paired, word in KINDS.items()
    }
    return Measured(conditions=where() | stack("numpy"), cases=count, apart=apart, compared=compared, covered=held)


def summary(measured: Measured) -> str:
    first = [
        [kind, str(measured.compared[kind]), *(f"{seen[seeds]:.1f}" if seeds in seen else "" for seeds in SEEDS)]
        for kind, seen in measured.apart.items()
    ]
    second = [[kind, *(f"{share:.1%}" for share in by.values())] for kind, by in measured.covered.items()]
    days = ", ".join(
        f"{value}" if name in ("machine", "date") else f"{name} {value}" for name, value in measured.conditions.items()
    )
    head = [f"{seeds} seeds" for seeds in SEEDS]
    largest = table([f"most points apart, {measured.cases:,} comparisons each", "cases", *head], first)
    right = table(["how often it holds the right number", "2 seeds", *head], second)
    return f"{largest}\n\n{right}\n\n{days}."


def main() -> None:
    began, parser = time.monotonic(), command_line(__doc__, kept=MEASURED / "power.json", page=PAGE)
    parser.add_argument("--cases", type=int, default=1000, help="simulated comparisons of each kind")
    asked = parser.parse_args()
    measured = measure(asked.cases)
    measured.write(asked.out)
    show_tables(summary(measured), asked, began, "measured power")


if __name__ == "__main__":
    main()
