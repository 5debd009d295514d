"""Puts a figure on a page. New data moves its lines; selections and zoom stay."""

from collections.abc import Callable

import streamlit as st

from dashboard.charts.figure import PICKED, Figure


def heading(title: str, unit: str = "") -> str:
    """A chart's title in Markdown, and behind it the unit of its axis."""
    return f"**{title}** :gray[:small[{unit}]]" if unit else f"**{title}**"


def show(figure: Figure, *, key: str, about: str, on_pick: Callable[[int], None] | None = None) -> None:
    """Draw the figure; `about` names it for screen readers, `on_pick` receives the step that a person clicks."""
    if on_pick is None:
        st.vega_lite_chart(figure.data, figure.spec, key=key, alt=about, height="content")
        return
    pick = on_pick

    def picked() -> None:
        points = st.session_state[key]["selection"].get(PICKED, [])
        if points and points[0].get("step") is not None:
            pick(int(points[0]["step"]))

    st.vega_lite_chart(
        figure.data, figure.spec, key=key, alt=about, height="content", on_select=picked, selection_mode=[PICKED]
    )
