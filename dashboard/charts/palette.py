"""Colours, the same everywhere, readable on light and dark and by colour-blind people."""

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar
from zlib import crc32

K = TypeVar("K", bound=Hashable)

REINFORCED = "#3a86d6"  # blue: positive advantage
DISCOURAGED = "#e8851c"  # orange: negative advantage
NEUTRAL = "#8c929c"
UNSCORED = "#d64550"
SIZE = "#8a63b8"  # violet: how large a value without a sign is, as an entropy
# the same from little to much: shades that differ in lightness, which colour-blind people see
SIZES = ("#cdbbe6", "#5f2da8")
INK = "#4c8bd0"  # the line of a chart that has only one

# Tableau 10, then its light partners: a colour for each of 20 runs.
CATEGORICAL = (
    *("#4e79a7", "#f28e2b", "#e15759", "#76b7b2", "#59a14f", "#b6992d", "#b07aa1", "#ff9da7", "#9c755f", "#79706e"),
    *("#a0cbe8", "#ffbe7d", "#f6b6b4", "#86bcb6", "#8cd17d", "#f1ce63", "#d4a6c8", "#fabfd2", "#d7b5a6", "#bab0ac"),
)
# Eight colours that colour-blind people tell apart, readable on light and dark (after Okabe and Ito).
GROUPS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#a89f20", "#8f6fc9")
# The rewards of every recipe keep their colour; any other name gets one from its own letters.
_REWARDS = {"correctness": 4, "format": 6, "length": 3, "pattern": 5, "exact_match": 0}


def advantage_colour(advantage: float | None, scale: float) -> str:
    """Blue for reinforced, orange for discouraged, grey near 0; at ±scale the colour is full."""
    if advantage is None:
        return UNSCORED
    share = min(1.0, abs(advantage) / scale) if scale > 0 else 0.0
    full = REINFORCED if advantage > 0 else DISCOURAGED
    channels = ((int(NEUTRAL[i : i + 2], 16), int(full[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(a + (b - a) * share**0.5):02x}" for a, b in channels)


def reward_colours(names: Sequence[str]) -> dict[str, str]:
    """One colour for each reward component, the same in every run that has it."""
    return _assign({name: _REWARDS.get(name, crc32(name.encode())) for name in names}, CATEGORICAL[:10])


def run_colours(run_ids: Sequence[int]) -> dict[int, str]:
    """One colour for each run, which does not change when another run is added after it."""
    return _assign({run_id: run_id - 1 for run_id in sorted(run_ids)}, CATEGORICAL)


def _assign(preferred: Mapping[K, int], palette: Sequence[str]) -> dict[K, str]:
    """Each key's preferred place among the first ten colours, or the next that is free."""
    taken: dict[K, int] = {}
    for key, wanted in preferred.items():
        places = [(wanted % 10 + offset) % len(palette) for offset in range(len(palette))]
        taken[key] = next((place for place in places if place not in taken.values()), places[0])
    return {key: palette[place] for key, place in taken.items()}
