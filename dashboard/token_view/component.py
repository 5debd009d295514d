"""The token view on a page. It draws itself in the browser: one script, which is given columns of numbers and texts.

The value that colours the tokens and the token that is pinned live in the address (`colour`, `token`). The script reads them
there and writes them there; it also tells them to the server, so that what the server writes into the address later keeps
them. A page shows one token view at a time.
"""

from collections.abc import Mapping
from pathlib import Path

import streamlit as st

from backend.contract.base import Json
from backend.contract.groups import CompletionRecord, Group
from backend.contract.records import Run
from dashboard.charts.palette import DISCOURAGED, NEUTRAL, REINFORCED, SIZE
from dashboard.components.address import repeat, write
from dashboard.session import client, guard, link
from dashboard.stored import get, is_recorded, number_at, text_at
from dashboard.token_view.columns import View, view_of

KEY = "token-view"
_FOLDER = Path(__file__).parent
# one module: a component's script imports nothing
_SCRIPTS = ("numbers.js", "chart.js", "picture.js", "text.js", "view.js")
_COLOURS = f":host {{ --up: {REINFORCED}; --down: {DISCOURAGED}; --none: {NEUTRAL}; --size: {SIZE}; }}\n"


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


_mount = st.components.v2.component(
    "groupscope.tokens", html=_read("view.html"), css=_COLOURS + _read("view.css"), js="\n".join(map(_read, _SCRIPTS))
)


@st.fragment
def draw_tokens(run: Run, group: Group, completion_index: int) -> None:
    """The tokens of one completion in colour, or why there are none to show."""
    completion = next(each for each in group.completions if each.index == completion_index)
    if not completion.has_trace:
        st.info(why_absent(run.config, group), icon=":material/data_array:")
        link("new-run", "Clone this run", icon=":material/content_copy:", clone=run.id)
        return
    with guard():
        view = _view(completion.id, completion, run.config)
    if not any(column["offered"] for column in view["columns"]):
        st.info("No values were recorded for these tokens.", icon=":material/data_array:")
        return
    _mount(data=view, key=KEY, on_chosen_change=_into_address)


@st.cache_data(ttl=600, max_entries=32, show_spinner=False)
def _view(completion_id: int, _completion: CompletionRecord, _config: Mapping[str, Json]) -> View:
    """A stored trace never changes, and neither does its run's configuration."""
    return view_of(client().tokens(completion_id), _completion, _config)


def _into_address() -> None:
    """What the script has already written there: {colour, token}, either of them None."""
    write(**st.session_state[KEY].chosen)
    repeat()


def why_absent(config: Mapping[str, Json], group: Group) -> str:
    """The reason, from what the run was stored with, and the way out."""
    if group.state == "filtered":
        return "This group was dead and replaced before the update, so it was never trained on and has no token values."
    if group.state == "probe":
        return "This group is of a probe prompt: sampled and scored, but never trained on. It has no token values."
    if is_recorded(config):
        return "No values of these tokens were recorded: the program that trained the run did not report any."
    if not isinstance(get(dict(config), "telemetry"), dict):
        return "A run of this kind keeps no token values: nothing is trained on its completions."
    kept = text_at(config, "telemetry.token_traces", "extremes")
    every = int(number_at(config, "telemetry.trace_every", 10))
    if kept == "none":
        return f"This run keeps no token values. {_WAY_OUT}"
    if kept == "periodic" and group.step % every:
        before = group.step - group.step % every
        return (
            f"This run keeps token values at every {every}th step, and this is step {group.step}: see step {before} or "
            f"{before + every}. {_WAY_OUT}"
        )
    traced = [str(completion.index + 1) for completion in group.completions if completion.has_trace]
    if kept == "extremes" and traced:
        return (
            f"This run keeps the token values of each group's best and worst completion, here {' and '.join(traced)}. "
            f"{_WAY_OUT}"
        )
    return (
        "The token values of this step were not kept: together they were larger than a report can carry, as the run's log "
        "says. Clone the run with Token traces set to extremes, or with smaller batches."
    )


_WAY_OUT = "To see every completion's, clone the run and set Token traces (under Records) to all."
