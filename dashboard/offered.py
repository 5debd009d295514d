"""The charts that pages show, kept so that a link can ask for their pictures.

Streamlit's own download button would hold two generators a chart, and a fragment that ticks may delete the file before it is
fetched.
"""

from collections import OrderedDict
from hashlib import sha256
from secrets import token_urlsafe
from threading import Lock
from typing import NamedTuple

import streamlit as st

from dashboard.charts.figure import Figure

# In every link to a file. Pages learn it over Streamlit's connection, which is refused to other sites; these cannot guess it.
TICKET = token_urlsafe(16)
KINDS = ("png", "svg")
MOST = 600  # charts, of all pages together; those drawn longest ago go first
_SESSION = "offers-charts"


class Offered(NamedTuple):
    """A chart as it was drawn last: its data, what stands above its picture, and what the file is called."""

    figure: Figure
    title: str
    file: str


_charts: OrderedDict[str, Offered] = OrderedDict()
_lock = Lock()


def offer(key: str, chart: Offered) -> dict[str, str]:
    """Keep the chart, in place of what this person's page showed under this key before: kind of picture -> its address."""
    session = st.session_state.setdefault(_SESSION, token_urlsafe(12))
    name = sha256(f"{session} {key}".encode()).hexdigest()[:32]
    with _lock:
        _charts[name] = chart
        _charts.move_to_end(name)
        while len(_charts) > MOST:
            _charts.popitem(last=False)
    return {kind: f"/take-away/{TICKET}/chart/{name}.{kind}" for kind in KINDS}


def find(name: str) -> Offered | None:
    """The chart, as long as it is kept."""
    with _lock:
        return _charts.get(name)
