"""Puts a figure on a page. New data moves its lines; selections and zoom stay."""

import re
from collections.abc import Callable
from functools import partial

import streamlit as st

from dashboard.charts.figure import PICKED, ZOOMED, Figure
from dashboard.report.pictures import png, svg

Pick = Callable[[int], None]
Zoom = Callable[[float, float], None]
_LONGEST = 80  # letters of a file's name


def heading(title: str, unit: str = "") -> str:
    """A chart's title in Markdown, and behind it the unit of its axis."""
    return f"**{title}** :gray[:small[{unit}]]" if unit else f"**{title}**"


def show(
    figure: Figure,
    *,
    key: str,
    about: str,
    file: str = "",
    on_pick: Pick | None = None,
    on_zoom: Zoom | None = None,
) -> None:
    """Draw the figure, and offer it as a picture; `about` names it for screen readers, `file` where it is kept.

    `on_pick` receives the step that a person clicks, `on_zoom` the ends of the range of x that a person drags over; the figure
    must have these selections.
    """
    modes = [name for name, wanted in ((PICKED, on_pick), (ZOOMED, on_zoom)) if wanted is not None]
    with st.container(key=f"figure-{_slug(key)}"):
        if not modes:
            st.vega_lite_chart(figure.data, figure.spec, key=key, alt=about, height="content")
        else:

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
        offer_pictures(figure, key=key, about=about, file=file)


def offer_pictures(figure: Figure, *, key: str, about: str, file: str = "") -> None:
    """Two quiet buttons over the chart's corner, which make the picture when they are pressed."""
    kinds = (("PNG", png, "image/png"), ("SVG", svg, "image/svg+xml"))
    with st.container(horizontal=True, gap=None, width="content", key=f"pictures-{_slug(key)}"):
        for kind, picture, media_type in kinds:
            st.download_button(
                kind,
                partial(picture, figure, title=about),
                file_name=f"{_slug(file or about)}.{kind.lower()}",
                mime=media_type,
                key=f"{kind}-{key}",
                type="tertiary",
                help=f"Save this chart as {kind}",
                on_click="ignore",
            )


def _slug(text: str) -> str:
    return re.sub("[^A-Za-z0-9_]+", "-", text).strip("-")[:_LONGEST] or "chart"


def _range(dragged: dict[str, list[float]] | None) -> tuple[float, float]:
    ends = (dragged or {}).get("x") or [0.0, 0.0]
    return min(ends), max(ends)
