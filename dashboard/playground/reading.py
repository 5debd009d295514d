"""Reads what a person types into the Playground: rewards, and further rows of them."""

import math
import re
from collections.abc import Sequence

import numpy as np

from dashboard.form.written import show_number

MOST = 1024  # completions of a group, as in a run
LARGEST = 1e6
UNSCORED = ("nan", "-", "–", "−")


def read_rewards(text: str, *, most: int = MOST) -> list[float]:
    """The numbers, NaN for one that could not be scored. Raises ValueError with what is wrong, in words."""
    words = [word for word in re.split(r"[\s,]+", text.strip()) if word]
    if not words:
        raise ValueError("Type at least one number, such as 1, 0, 0.5.")
    if len(words) > most:
        raise ValueError(f"{len(words)} numbers are too many: {most} at most.")
    return [_number(word) for word in words]


def read_rows(text: str) -> list[list[float]]:
    """Rows of such numbers with semicolons between them; none where nothing is typed."""
    return [read_rewards(row) for row in text.split(";") if row.strip()]


def _number(word: str) -> float:
    if word.lower() in UNSCORED:
        return math.nan
    try:
        value = float(word.replace("−", "-"))
    except ValueError:
        raise ValueError(f"“{word}” is not a number.") from None
    if not abs(value) <= LARGEST:
        raise ValueError(f"{word} is too large: up to {LARGEST:,.0f}.")
    return value


def written(rewards: Sequence[float | None]) -> str:
    """The rewards as a person would type them."""
    return ", ".join("-" if reward is None or math.isnan(reward) else show_number(float(reward)) for reward in rewards)


def batch_of(rows: Sequence[Sequence[float]]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """The groups as (P, G): shorter ones are filled with NaN, which counts for nothing."""
    longest = max(map(len, rows))
    return np.array([[*row, *[math.nan] * (longest - len(row))] for row in rows], dtype=np.float64)
