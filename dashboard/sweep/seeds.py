"""With which seeds every variant is run."""

import re

import streamlit as st

from dashboard.components.synced import whole_number

MOST_SEEDS = 10


def show_seeds() -> list[int] | None:
    """So many from 0, or exactly those that are named; None where they cannot be read."""
    many, named = st.columns(2)
    number = whole_number("Seeds of each", 1, MOST_SEEDS, 3, place=many, key="seeds")
    text = named.text_input("or these", key="seed-list", bind="query-params", placeholder="0, 1, 2")
    return list(range(number)) if not text.strip() else read_seeds(text)


def read_seeds(text: str) -> list[int] | None:
    """1, 2 7 as numbers; None where it is no list of at most ten different seeds."""
    parts = [part for part in re.split(r"[,\s]+", text) if part]
    if not all(part.isascii() and part.isdigit() and int(part) < 2**31 for part in parts):
        return None
    seeds = list(dict.fromkeys(int(part) for part in parts))
    return seeds if 1 <= len(seeds) <= MOST_SEEDS else None
