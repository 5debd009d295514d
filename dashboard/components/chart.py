"""Puts a figure on a page. New data moves its lines; selections and zoom stay."""

import re
from collections.abc import Callable

import streamlit as st

from dashboard.charts.figure import PICKED, ZOOMED, Figure
from dashboard.report.pictures import svg

Pick = Callable[[int], None]
Zoom = Callable[[float, float], None]


def heading(title: str, unit: str = "") -> str:
    """A chart's title in Markdown, and behind it the unit of its axis."""
    return f"**{title}** :gray[:small[{unit}]]" if unit else f"**{title}**"


def show(figure: Figure, *, key: str, about: str, on_pick: Pick | None = None, on_zoom: Zoom | None = None) -> None:
    """Draw the figure; `about` names it for screen readers.

    `on_pick` receives the step that a person clicks, `on_zoom` the ends of the range of x that a person drags over; the figure
    must have these selections.
    """
    modes = [name for name, wanted in ((PICKED, on_pick), (ZOOMED, on_zoom)) if wanted is not None]
    if not modes:
        st.vega_lite_chart(figure.data, figure.spec, key=key, alt=about, height="content")
        return

    def selected() -> None:
        selection = st.session_state[key]["selection"]
        low, high = _range(selection.get(ZOOMED))
        points = selection.get(PICKED) or []
        if on_zoom is not None and low < high:  # a click drags over nothing
            on_zoom(low, high)
        elif on_pick is not None and points and points[0].get("step") is not None:
            on_pick(int(points[0]["step"]))

    st.vega_lite_chart(
        figure.data, figure.spec, key=key, alt=about, height="content", on_select=selected, selection_mode=modes
    )


def offer_svg(figure: Figure, *, key: str, name: str) -> None:
    """A button that makes the chart as SVG when it is pressed. The chart's own bar has the PNG."""
    st.download_button(
        "SVG",
        lambda: svg(figure),
        file_name=f"{re.sub('[^A-Za-z0-9_-]', '-', name)}.svg",
        mime="image/svg+xml",
        key=key,
        type="tertiary",
        help="Download this chart as SVG. The bar over the chart has it as PNG.",
        on_click="ignore",
    )


def _range(dragged: dict[str, list[float]] | None) -> tuple[float, float]:
    ends = (dragged or {}).get("x") or [0.0, 0.0]
    return min(ends), max(ends)
