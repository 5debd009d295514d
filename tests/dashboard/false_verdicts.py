"""How often two settings that do not differ are told apart: comparisons simulated as runs are evaluated, and judged by the real code.

python tests/dashboard/false_verdicts.py [cases]     (10,000 of each kind: about two minutes)
"""

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # also from the command line

from dashboard.charts.interval import difference, verdict

ITEMS = (12, 20, 50, 100, 200, 500)
RATES = (0.05, 0.2, 0.5, 0.9)


class Kind(NamedTuple):
    """`rate` of success, which varies by `spread` from seed to seed; half of that is what a seed does to both settings."""

    seeds: int
    items: int
    rate: float
    spread: float
    paired: bool


def kinds(seeds: tuple[int, ...], items: tuple[int, ...] = ITEMS) -> Iterator[Kind]:
    yield from itertools.starmap(Kind, itertools.product(seeds, items, RATES, (0.0, 0.1), (True, False)))


def told_apart(kind: Kind, cases: int, random: np.random.Generator, effect: float = 0.0) -> int:
    """Of `cases` comparisons, how many end in higher or lower. The first setting's rate is higher by `effect`."""
    shape, shared = (cases, kind.seeds), random.normal(size=(cases, kind.seeds))
    measured = []
    for gain in (effect, 0.0):
        luck = (shared + random.normal(size=shape)) * kind.spread / np.sqrt(2)
        rates = np.clip(kind.rate + gain + luck, 0, 1)
        measured.append((random.binomial(kind.items, rates) / kind.items).tolist())
    other = 0 if kind.paired else kind.seeds  # no common seeds
    found = 0
    for mine, theirs in zip(*measured, strict=True):
        words = verdict(difference(dict(enumerate(mine)), dict(enumerate(theirs, other))))
        found += ": higher" in words or ": lower" in words
    return found


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    generator = np.random.default_rng(0)
    worst = 0.0
    for one in kinds((2, 3, 5)):
        share = told_apart(one, count, generator) / count
        worst = max(worst, share)
        sys.stdout.write(f"{one}: {share:.2%}\n")
    sys.stdout.write(f"the most, of {count:,} comparisons of a kind: {worst:.2%}\n")
    sys.exit(worst > 0.06)
