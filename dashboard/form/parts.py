"""What a whole is made of, in a narrow place: a bar of its parts, the largest first, and folded below it a line for each."""

from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path

import streamlit as st

from backend.contract.records import PHASES
from dashboard.charts.palette import CATEGORICAL
from dashboard.format import percent

STYLE = Path(__file__).with_name("parts.css")
# Each part has its colour, whichever others are there.
NAMES = {
    "activations": "activations",
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer",
    "reference": "reference",
    "logits": "logits, in chunks",
    "cache": "keys and values (KV cache)",
    "copies": "copies of the weights",
    **{phase: word for phase, word in PHASES.items() if phase != "reference"},
    "rest": "rest",
}


def show_parts(parts: Mapping[str, float], show_value: Callable[[float], str], advice: str) -> None:
    """The bar, what `advice` says of it, and folded in it a line for each part."""
    html = parts_html(parts, show_value, advice)
    if html:  # Streamlit refuses an empty one
        st.html(STYLE)
        st.html(html)


def parts_html(parts: Mapping[str, float], show_value: Callable[[float], str], advice: str) -> str:
    """As HTML; every text is escaped."""
    total = sum(parts.values())
    if not total > 0:
        return ""
    order = [(name, value) for name, value in sorted(parts.items(), key=lambda part: -part[1]) if value > 0]
    bar = "".join(
        f'<i style="flex-grow:{value / total:.5f};background:{_colour(name)}" title="{escape(_name(name))}"></i>'
        for name, value in order
    )
    lines = "".join(_line(name, show_value(value), value / total) for name, value in order)
    return (
        f'<details class="parts"><summary><div class="bar">{bar}</div>{escape(advice)} <u>All parts</u></summary>'
        f"<table>{lines}</table></details>"
    )


def _line(name: str, value: str, share: float) -> str:
    return (
        f'<tr><td><i style="background:{_colour(name)}"></i>{escape(_name(name))}</td>'
        f"<td>{escape(value)}</td><td>{percent(share)}</td></tr>"
    )


def _name(part: str) -> str:
    return NAMES.get(part, part.replace("_", " "))


def _colour(name: str) -> str:
    known = list(NAMES)
    return CATEGORICAL[known.index(name) % 10] if name in known else CATEGORICAL[9]
