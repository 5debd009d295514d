"""What chance makes of claims: how often Paid for calls a word clear that nothing is paid for, and how often the interval of a spread holds it.

    python benchmarks/chance.py --write                           and put the tables into docs/benchmarks.md; ten minutes
    python benchmarks/chance.py --windows 60 --spreads 300        a tenth of it

A window has groups of 8 completions; each is right by chance, and has each of 40 words by chance. In the planted windows one word
decides. Spreads are those of two settings of which one has more seeds.
"""

import math
import sys
import time
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))  # also from the command line
from results.page import MEASURED, PAGE, Kept, command_line, show_tables, stack, table, where

from backend.properties.association import DRAWS, Association, associate, centred, differing
from dashboard.charts.power import spread_interval

SIZE, WORDS = 8, 40
EVERY = (0.03, 0.25)  # of the first and the last word, the others evenly between
MOST, LEAST = 0.075, 0.93


class Window(NamedTuple):
    """Groups whose completions are right at this rate; each word is in a share of the completions, the first and the last in these."""

    groups: int
    right: float
    share: tuple[float, float] = EVERY


WINDOWS = [
    *(Window(groups, right) for groups, right in product((60, 120, 300), (0.08, 0.25, 0.92))),
    *(Window(120, 0.92, (share, share)) for share in (0.03, 0.06, 0.25)),
]
PLANTED = [Window(*each) for each in product((120, 300), (0.25, 0.92), ((0.06, 0.06), (0.25, 0.25)))]


def studied(window: Window, random: np.random.Generator, *, draws: int = DRAWS, paid: bool = False) -> Association:
    """What is found in a window; if `paid`, most of what has the first word gets the rarer reward."""
    count = window.groups * SIZE
    words_N_K = random.random((count, WORDS)) < np.linspace(*window.share, WORDS)
    rates_N = np.full(count, window.right)
    if paid:
        rates_N[words_N_K[:, 0]] = 0.2 if window.right > 0.5 else 0.9
    rewards_N, groups_N = (random.random(count) < rates_N).astype(float), np.repeat(np.arange(window.groups), SIZE)
    kept_N = differing(rewards_N, groups_N)
    numbers_N = np.unique(groups_N[kept_N], return_inverse=True)[1].astype(np.int64)
    data = centred(rewards_N[kept_N], words_N_K[kept_N].astype(float), numbers_N, numbers_N)
    return associate(data, random, draws=draws)


def called_clear(window: Window, windows: int, random: np.random.Generator, *, draws: int = DRAWS) -> float:
    """The share of windows in which a word is clear."""
    return float(np.mean([studied(window, random, draws=draws).clear_K.any() for _ in range(windows)]))


def first(window: Window, random: np.random.Generator) -> bool:
    """Whether the planted word is clear, and goes with the reward most."""
    found = studied(window, random, paid=True)
    return bool(found.clear_K[0] and np.nanargmax(np.abs(found.correlation_K)) == 0)


class Spread(NamedTuple):
    """The seeds of two settings, whose values have these standard deviations."""

    seeds: tuple[int, int]
    spreads: tuple[float, float]


SPREADS = [
    Spread(*each) for each in product(((3, 12), (3, 40), (4, 20), (5, 40)), ((1.0, 1.0), (0.3, 1.4), (1.4, 0.3)))
]


def held(spread: Spread, count: int, random: np.random.Generator) -> float:
    """How often the interval holds the true variance of the difference of means."""
    samples: list[NDArray[np.float64]] = [
        random.normal(scale=scale, size=(count, seeds)).var(axis=1, ddof=1)
        for seeds, scale in zip(spread.seeds, spread.spreads, strict=True)
    ]
    true = sum(scale**2 / seeds for seeds, scale in zip(spread.seeds, spread.spreads, strict=True))
    inside = 0
    for variances in zip(*samples, strict=True):
        low, high = spread_interval([float(one) for one in variances], spread.seeds)
        seen = math.fsum(one / seeds for one, seeds in zip(variances, spread.seeds, strict=True))
        inside += low * seen <= true <= high * seen
    return inside / count


class Measured(Kept):
    """Shares by cell, in the order of WINDOWS, PLANTED and SPREADS."""

    conditions: dict[str, str] = {}
    windows: int = 0
    spreads: int = 0
    clear: list[float] = []
    planted: list[bool] = []
    held: list[float] = []


def summary(measured: Measured) -> str:
    """Two tables, and what they come to."""
    shares = [
        f"{low:.0%}" if low == high else f"{low:.0%} to {high:.0%}" for low, high in (one.share for one in WINDOWS)
    ]
    windows = [
        [f"{one.groups} groups", f"{one.right}", share, f"{clear:.1%}"]
        for one, share, clear in zip(WINDOWS, shares, measured.clear, strict=True)
    ]
    spreads = [
        [" and ".join(map(str, one.seeds)), " and ".join(map(str, one.spreads)), f"{held:.1%}"]
        for one, held in zip(SPREADS, measured.held, strict=True)
    ]
    head = ["window", "right", "words are in", f"a word is clear in, of {measured.windows} windows"]
    of_spreads = table(["seeds", "spreads", f"the interval holds it in, of {measured.spreads:,}"], spreads)
    days = ", ".join(
        value if name in ("machine", "date") else f"{name} {value}" for name, value in measured.conditions.items()
    )
    count = f"At most {max(measured.clear):.1%} ({MOST:.1%} is allowed), at least {min(measured.held):.1%} ({LEAST:.0%} is asked for). "
    count += f"A planted word came first in {sum(measured.planted)} of {len(PLANTED)} windows. {days}."
    return f"{table(head, windows)}\n\n{of_spreads}\n\n{count}"


def main() -> None:
    began, parser = time.monotonic(), command_line(__doc__, kept=MEASURED / "chance.json", page=PAGE)
    parser.add_argument("--windows", type=int, default=600, help="of each cell")
    parser.add_argument("--spreads", type=int, default=3000, help="of each cell")
    asked = parser.parse_args()
    measured = Measured(conditions=where() | stack("numpy"), windows=asked.windows, spreads=asked.spreads)
    measured.held = [held(one, asked.spreads, np.random.default_rng(seed)) for seed, one in enumerate(SPREADS)]
    measured.planted = [first(one, np.random.default_rng(seed)) for seed, one in enumerate(PLANTED)]
    for seed, one in enumerate(WINDOWS):
        measured.clear.append(called_clear(one, asked.windows, np.random.default_rng(seed)))
        print(f"{one}: a word is clear in {measured.clear[-1]:.1%}", flush=True)
    measured.write(asked.out)
    show_tables(summary(measured), asked, began, "measured chance")


if __name__ == "__main__":
    main()
