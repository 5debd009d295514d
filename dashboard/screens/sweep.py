"""A sweep: algorithms on common ground, or settings on a grid or drawn at random, each with several seeds."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from dashboard.comparison.settings import cell, short_names
from dashboard.components.synced import one_of
from dashboard.format import counted
from dashboard.session import fetch_catalog, guard
from dashboard.sweep.algorithms import show_algorithms
from dashboard.sweep.base import others_of, recipes_of
from dashboard.sweep.fields import Variant
from dashboard.sweep.queue import show_queue
from dashboard.sweep.settings import show_settings

ALGORITHMS, SETTINGS = "Algorithms", "Settings"
ROWS = 8  # of the runs that will be queued


def show_page() -> None:
    """Lay the page: what varies to the left, the rest and what it would cost to the right."""
    with guard():
        catalog = fetch_catalog()
    written, beside = st.columns([2.5, 1], gap="medium")
    with written:
        with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
            st.subheader("New sweep", width="content", anchor=False)
            varied = one_of("What varies", (ALGORITHMS, SETTINGS), key="vary")
        others = others_of()
        if varied == ALGORITHMS:
            plan = show_algorithms(catalog.recipes, others)
        else:
            plan = show_settings([*recipes_of(catalog), *others])
        below = st.container()
    with beside, st.container(key="preflight", border=True):  # stays in sight, as on the form of a run
        variants, seeds = show_queue(plan)
    with below:
        show_runs(variants, seeds)


def show_runs(variants: Sequence[Variant], seeds: Sequence[int]) -> None:
    """The first of the runs that will be queued, in their order."""
    if not variants:
        return
    names = short_names(list(dict.fromkeys(path for one in variants for path in one.values)))
    rows = [
        {name: cell(one.values.get(path)) for path, name in names.items()} | {"seed": str(seed)}
        for seed in seeds
        for one in variants
    ]
    first = f"; the first {ROWS} are shown" if len(rows) > ROWS else ""
    st.markdown(f"**{counted(len(rows), 'run')}** in queue order{first}")
    st.dataframe(pd.DataFrame(rows[:ROWS]), hide_index=True, key="sweep-runs", height="content")


show_page()
