"""Reads what a person types into the Playground: rewards, further rows of them, and the settings of a model."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from pydantic import BaseModel, TypeAdapter, ValidationError

from dashboard.form.widgets import in_words
from dashboard.form.written import read_number, show_number

MOST = 1024  # completions of a group, as in a run
LARGEST = 1e6
UNSCORED = ("nan", "-", "–", "−")
M = TypeVar("M", bound=BaseModel)


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


def read_settings(model: TypeAdapter[M], settings: Mapping[str, str]) -> M:
    """The settings of a model from what was typed. Raises ValueError with the field and what is wrong with it."""
    values = {name: text if name == "kind" else read_number(text) for name, text in settings.items()}
    try:
        return model.validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][-1]) if first["loc"] else ""
        said = first["msg"].removeprefix("Value error, ")
        raise ValueError(f"{in_words(field)}: {said}" if field in values else said) from None
