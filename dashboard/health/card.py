"""One hint as a card: what was measured, what to do, the rule, and the curves behind it."""

from collections.abc import Mapping
from typing import TypeAlias

import streamlit as st

from backend.contract.health import Hint
from backend.contract.records import Run, Series
from dashboard.charts.meaning import meaning
from dashboard.components.chart import heading, show
from dashboard.components.model_text import one_line
from dashboard.format import plain
from dashboard.health.behind import draw_ways
from dashboard.health.figure import evidence_figure, shown_steps

CHARTS = 2
WARNING = ":orange[:material/warning:]"
ICONS = {"warning": WARNING, "note": ":blue[:material/info:]"}
Curves: TypeAlias = Mapping[tuple[int, int], Mapping[str, Series]]
"""By the steps that a chart shows, then by metric."""


def draw_card(run: Run, hint: Hint, curves: Curves) -> None:
    """Draw the hint; `curves` has the first metrics of its evidence over the steps that are shown of it."""
    with st.container(border=True, key=f"hint-{hint.code}"):
        words, charts = st.columns([5, 4], gap="medium")
        with words:
            st.markdown(f"{ICONS[hint.level]} **{said(hint.title)}**")
            st.markdown(said(hint.measured))
            st.markdown(f"**What to do.** {said(hint.advice)}")
            st.caption(f"Rule: {said(hint.rule)}.")
            draw_ways(run, hint)
        if hint.evidence is not None:
            known = curves[shown_steps(hint.evidence)]
            drawn = [name for name in hint.evidence.metrics[:CHARTS] if name in known]
            for place, name in zip(charts.columns(max(len(drawn), 1)), drawn, strict=False):
                with place:
                    st.markdown(f":small[{heading(plain(meaning(name).title), meaning(name).unit)}]")
                    figure = evidence_figure(name, known[name], hint.evidence)
                    show(
                        figure,
                        key=f"behind-{run.id}-{hint.code}-{name}",
                        about=f"{meaning(name).title}: {hint.title}",
                        file=f"run-{run.id}-{hint.code}-{name}",
                    )


def said(text: str) -> str:
    """A hint's words as they are: names of rewards, engines and phases among them were written by others."""
    return plain(one_line(text))
