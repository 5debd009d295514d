"""A figure as a picture: what the browser draws, drawn by vl-convert."""

import json
from typing import cast

import vl_convert

from backend.contract.base import Json
from dashboard.charts.figure import Figure, Spec
from dashboard.components.model_text import unturned

WIDTH = 420  # of the plot, in CSS pixels
_MARGIN = 14  # around a picture that stands alone
_FONT = "Segoe UI, Helvetica Neue, Arial, sans-serif"  # each a name that needs no quotes: those of digits lose all text
_CONFIG: Json = {
    "font": _FONT,
    "view": {"stroke": None},
    "axis": {
        "domain": False,
        "ticks": False,
        "gridColor": "#e6e9ed",
        "labelColor": "#66707c",
        "labelFontSize": 11,
        "labelPadding": 6,
        "titleColor": "#66707c",
        "titleFontSize": 11,
        "titleFontWeight": "normal",
    },
    "legend": {"labelColor": "#20252b", "labelFontSize": 11, "labelLimit": 260},
    "title": {"anchor": "start", "fontSize": 13, "color": "#20252b", "offset": 10},
}


def svg(figure: Figure, *, width: int = WIDTH, title: str = "") -> str:
    """The figure as SVG; `title` stands above the plot."""
    return unturned(str(vl_convert.vegalite_to_svg(_whole(figure, width, title))))


def png(figure: Figure, *, width: int = WIDTH, title: str = "", scale: float = 2.0) -> bytes:
    """The figure as PNG, with `scale` pixels for each CSS pixel."""
    return bytes(vl_convert.vegalite_to_png(_whole(figure, width, title), scale=scale))


def _whole(figure: Figure, width: int, title: str) -> Spec:
    """The specification with its data in it. What was not finite is null, as it is where the browser draws."""
    rows = json.loads(figure.data.to_json(orient="records"))
    headed: Spec = {"title": unturned(title), "padding": _MARGIN} if title else {}
    return cast(
        Spec,
        {
            **figure.spec,
            "width": width,
            "background": "white",
            "config": _CONFIG,
            "datasets": {"source": rows},
            **headed,
        },
    )
