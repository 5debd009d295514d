"""Charts as pictures, drawn by vl-convert as the browser draws them, and the charts of open pages, kept for the links to their pictures.

Streamlit's own download button would hold two generators a chart, and a fragment that ticks may delete the file before it is
fetched.
"""

import json
from collections import OrderedDict
from hashlib import sha256
from secrets import token_urlsafe
from threading import Lock
from typing import NamedTuple, cast

import streamlit as st
import vl_convert

from backend.contract.base import Json, finite
from dashboard.charts.figure import Figure, Spec
from dashboard.text import unturned

# In every link to a file. Pages learn it over Streamlit's connection, which is refused to other sites; these cannot guess it.
TICKET = token_urlsafe(16)
KINDS = ("png", "svg")
MOST = 600  # charts, of all pages together; those drawn longest ago go first
_SESSION = "offers-charts"
WIDTH = 420  # of the plot, in CSS pixels
_MARGIN = 14  # around a picture that stands alone
_LONGEST = 400  # letters of a text
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

_LEGEND: Json = {"orient": "top", "title": None, "columns": 3, "symbolType": "stroke", "symbolOpacity": 1, "offset": 6}
_lock = Lock()


def svg(figure: Figure, *, width: int = WIDTH, title: str = "") -> str:
    """The figure as SVG; `title` stands above the plot."""
    return str(vl_convert.vegalite_to_svg(_whole(figure, width, title)))


def png(figure: Figure, *, width: int = WIDTH, title: str = "", scale: float = 2.0) -> bytes:
    """The figure as PNG, with `scale` pixels for each CSS pixel."""
    return bytes(vl_convert.vegalite_to_png(_whole(figure, width, title), scale=scale))


def _whole(figure: Figure, width: int, title: str) -> Spec:
    """The specification with its data in it. What was not finite is null, as it is where the browser draws."""
    rows = json.loads(figure.data.to_json(orient="records"))
    for name, values in figure.data.select_dtypes("float").items():  # which to_json rounds to ten decimals
        for row, value in zip(rows, values.tolist(), strict=True):
            row[name] = finite(value)
    spec: Spec = {**figure.spec, "width": width, "background": "white", "config": _CONFIG, "datasets": {"source": rows}}
    if title:
        spec = cast(Spec, _explained({**spec, "title": title, "padding": _MARGIN}, title))
    return cast(Spec, _writable(spec))


def _writable(part: Json) -> Json:
    """Replace control characters by signs, since vl-convert aborts the process at one, and cut texts that would take minutes to
    measure.
    """
    if isinstance(part, str):
        return unturned(part[:_LONGEST])
    if isinstance(part, list):
        return [_writable(one) for one in part]
    return {name: _writable(value) for name, value in part.items()} if isinstance(part, dict) else part


def _explained(part: Json, title: str) -> Json:
    """Add what the page around a chart says and a picture alone would lack: which line is which, and that x is the step."""
    if isinstance(part, list):
        return [_explained(one, title) for one in part]
    if not isinstance(part, dict):
        return part
    explained = {name: value if name == "datasets" else _explained(value, title) for name, value in part.items()}
    encoding = explained.get("encoding")
    if isinstance(encoding, dict):
        colour, x = encoding.get("color"), encoding.get("x")
        if isinstance(colour, dict) and colour.get("legend", ...) is None and _labels(colour) not in ([], [title]):
            encoding["color"] = {**colour, "legend": _LEGEND}
        if isinstance(x, dict) and x.get("field") == "x" and x.get("title") is None:
            encoding["x"] = {**x, "title": "step"}
    return explained


def _labels(colour: dict[str, Json]) -> list[Json]:
    """The names of the lines that a chart tells apart by colour."""
    scale = colour.get("scale")
    domain = scale.get("domain") if isinstance(scale, dict) and colour.get("field") == "label" else None
    return domain if isinstance(domain, list) else []


class Offered(NamedTuple):
    """A chart as it was drawn last, with the title above its picture and the name of its file."""

    figure: Figure
    title: str
    file: str


_charts: OrderedDict[str, Offered] = OrderedDict()


def offer(key: str, chart: Offered) -> dict[str, str]:
    """Keep the chart, in place of the one that this person's page showed under this key before. Returns kind of picture -> address."""
    session = st.session_state.setdefault(_SESSION, token_urlsafe(12))
    name = sha256(f"{session} {key}".encode()).hexdigest()[:32]
    with _lock:
        _charts[name] = chart
        _charts.move_to_end(name)
        while len(_charts) > MOST:
            _charts.popitem(last=False)
    return {kind: f"/downloads/{TICKET}/chart/{name}.{kind}" for kind in KINDS}


def find(name: str) -> Offered | None:
    """The chart, as long as it is kept."""
    with _lock:
        return _charts.get(name)
