"""Puts a figure on a page. New data moves its lines; selections and zoom stay."""

import re
from collections.abc import Callable
from hashlib import sha256
from html import escape

import streamlit as st

from dashboard.charts.figure import PICKED, ZOOMED, Figure
from dashboard.components.pictures import Offered, offer

Pick = Callable[[int], None]
Zoom = Callable[[float, float], None]
_LONGEST = 80  # letters of a file's name


def heading(title: str, unit: str = "") -> str:
    """A chart's title in Markdown, and behind it the unit of its axis."""
    return f"**{title}** :gray[:small[{unit}]]" if unit else f"**{title}**"


def show(
    figure: Figure, *, key: str, about: str, file: str = "", on_pick: Pick | None = None, on_zoom: Zoom | None = None
) -> None:
    """Draw the figure, and offer it as a picture; `about` names it for screen readers, `file` where it is kept.

    `on_pick` receives the step of the point that a person clicks (or what else `Look.picked` names), `on_zoom` the ends of the
    range of x that a person drags over; the figure must have these selections.
    """
    modes = [name for name, wanted in ((PICKED, on_pick), (ZOOMED, on_zoom)) if wanted is not None]
    with st.container(key=place_key("figure", key), gap=None):
        if not modes:
            st.vega_lite_chart(figure.sent, figure.spec, key=key, alt=about, height="content")
        else:

            def selected() -> None:
                selection = st.session_state[key]["selection"]
                ends = (selection.get(ZOOMED) or {}).get("x") or [0.0, 0.0]
                low, high = min(ends), max(ends)
                points = selection.get(PICKED) or []
                if on_zoom is not None and low < high:  # a click drags over nothing
                    on_zoom(low, high)
                elif on_pick is not None and points and (values := list(points[0].values())):
                    on_pick(int(values[0]))

            st.vega_lite_chart(
                figure.sent, figure.spec, key=key, alt=about, height="content", on_select=selected, selection_mode=modes
            )
        offer_pictures(figure, key=key, about=about, file=file)


def offer_pictures(figure: Figure, *, key: str, about: str, file: str = "") -> None:
    """Two quiet links in the chart's corner; what they lead to is drawn when it is asked for."""
    pictures = offer(key, Offered(figure, about, _slug(file or about)))
    links = (f'<a href="{escape(address)}" download>{kind.upper()}</a>' for kind, address in pictures.items())
    st.html(f'<div class="pictures" role="group" aria-label="Save this chart">{"".join(links)}</div>')


def place_key(place: str, key: str) -> str:
    """A container's key that CSS can name: `panel-reward`. What CSS cannot is replaced, and a digest keeps apart two keys that would then be one."""
    written = _slug(key)
    return f"{place}-{written}" if written == key else f"{place}-{written}-{sha256(key.encode()).hexdigest()[:10]}"


def _slug(text: str) -> str:
    return re.sub("[^A-Za-z0-9_]+", "-", text).strip("-")[:_LONGEST] or "chart"
