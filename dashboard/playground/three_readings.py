"""What the typed rewards come to under either std, and as softmax weights."""

import math
from collections.abc import Sequence

import streamlit as st

from backend.contract.advantage import Advantage, GroupZscore
from backend.contract.groups import Group
from dashboard.format import MISSING, number
from dashboard.playground.estimate import zscore_readings

_READINGS = (
    ("population", "z-score, std over G", "population, as numpy.std"),
    ("sample", "z-score, std over G\u00a0−\u00a01", "sample, as torch.std and in TRL"),
    ("softmax", "softmax weights", "recipe Group-wise softmax"),
)


def draw_readings(rewards: Sequence[float | None], chosen: Advantage) -> None:
    """One row for each reading, the chosen one marked; whatever is chosen, all of them are there."""
    st.markdown(
        "**The same rewards, read in three ways**",
        help="GRPO's papers do not say which std they mean: both are options.",
    )
    readings = zscore_readings([math.nan if reward is None else reward for reward in rewards])
    taken = chosen.std if isinstance(chosen, GroupZscore) else chosen.kind
    rows = "".join(_row(name, title, source, readings[name], name == taken) for name, title, source in _READINGS)
    head = "<tr><th></th><th>mean</th><th>std</th><th>advantages</th></tr>"
    st.html(f'<table class="play-readings">{head}{rows}</table>')


def _row(name: str, title: str, source: str, group: Group, chosen: bool) -> str:
    mean = short(group.reward_mean)
    std = MISSING if name == "softmax" else short(group.reward_std)
    style = ' class="chosen"' if chosen else ""
    return f"<tr{style}><td>{title}<br><small>{source}</small></td><td>{mean}</td><td>{std}</td><td>{spread(group)}</td></tr>"


def short(value: float | None) -> str:
    """0.53, 0.5, 1.0: two decimals without a padding 0, very large or small ones as usual."""
    if value is None or (value and not 0.01 <= abs(value) < 1000):
        return number(value)
    text = f"{abs(value):.2f}".rstrip("0")
    return ("−" if value < 0 else "") + (f"{text}0" if text.endswith(".") else text)


def spread(group: Group) -> str:
    """±0.94 where highest and lowest mirror each other, else both; for weights, from low to high."""
    advantages = [c.advantage for c in group.completions if c.reward is not None and c.advantage is not None]
    if not advantages:
        return MISSING
    low, high = min(advantages), max(advantages)
    if low >= 0 and high > 0:
        return f"{high:.3f}" if low == high else f"{high:.3f} / {low:.3f}"
    if math.isclose(high, -low):
        return f"±{short(high)}" if high else "0"
    return f"+{short(high)} / {short(low)}"
