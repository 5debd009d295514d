"""Several runs beside each other: which is better, whether that is luck, and where they differ."""

from collections.abc import Mapping, Sequence

import streamlit as st

from backend.contract.base import Json
from backend.contract.common_ground import seeded
from backend.contract.records import TERMINAL, Run
from dashboard.comparison.controls import draw_controls
from dashboard.comparison.curves import draw_curves
from dashboard.comparison.distributions import draw_distributions
from dashboard.comparison.parallel import draw_parallel
from dashboard.comparison.prompts import draw_prompts
from dashboard.comparison.selection import Chosen, choose, draw_progress, draw_sweep, draw_sweeps, label, runs_of
from dashboard.comparison.settings import draw_differences, scored_by, setting
from dashboard.components.address import browser_knows, write_only
from dashboard.components.live import draw_again, moment
from dashboard.session import client, guard, link

CURVES, SETTINGS, DISTRIBUTIONS, PROMPTS = "Curves", "Settings", "Distributions", "Prompts"
TICK = 2.0  # seconds between two reads while a run moves
# A link to the page that is open changes nothing for Streamlit: the bar's own, on a comparison, would seem to be dead.
_PRESSES = """
export default function ({ setTriggerValue }) {
  const onClick = (event) => {
    const link = event.target.closest("[data-testid=stTopNavLink]")
    const elsewhere = event.metaKey || event.ctrlKey || event.shiftKey || event.altKey  // a new tab, a window, a file
    if (!link || elsewhere || new URL(link.href).pathname !== location.pathname) return
    event.preventDefault()
    event.stopPropagation()
    setTriggerValue("asked", true)
  }
  document.addEventListener("click", onClick, true)
  return () => document.removeEventListener("click", onClick, true)
}
"""
_presses = st.components.v2.component("groupscope.presses", js=_PRESSES)


def main() -> None:
    """Draw the choice of runs and the open view of them; a press on Compare in the bar begins with an empty choice."""
    with st.container(key="presses"):
        _presses(key="presses-script", on_asked_change=write_only)
    chosen = choose()
    if chosen.sweep is not None:
        draw_sweep(chosen.sweep)
    if not chosen.runs:
        draw_empty(chosen)
        return
    if chosen.moving:
        st.fragment(follow, run_every=TICK)(chosen)
    if chosen.sweep is not None:
        draw_progress(chosen.sweep, chosen.runs)
    names = (CURVES, SETTINGS, DISTRIBUTIONS, PROMPTS)
    tabs = st.tabs(names, key="view", bind="query-params")
    for name, tab in zip(names, tabs, strict=True):
        if tab.open:
            with tab:
                draw_view(name, chosen)


def draw_view(name: str, chosen: Chosen) -> None:
    """The tab that is open."""
    runs = chosen.runs
    if name == CURVES:
        controls = draw_controls(runs, sweep=chosen.sweep is not None)
        draw_curves(runs, controls)
        if controls.by:
            draw_differences(_by_setting(runs, controls.by))
        else:
            draw_differences(_by_run(runs))
    elif name == SETTINGS:
        draw_parallel(runs)
        draw_differences(_by_run(runs))
    elif name == DISTRIBUTIONS:
        draw_distributions(runs)
    else:
        draw_prompts(runs)


def _by_run(runs: Sequence[Run]) -> dict[str, Mapping[str, Json]]:
    """Each run's configuration and what scored it."""
    return {label(run): {**run.config, **scored_by([run])} for run in runs}


def _by_setting(runs: Sequence[Run], fields: Sequence[str]) -> dict[str, Mapping[str, Json]]:
    """The same of each setting, without the seeds of its runs."""
    together: dict[str, list[Run]] = {}
    for run in runs:
        together.setdefault(setting(run, fields), []).append(run)
    return {name: {**seeded(of[-1].config, 0), **scored_by(of)} for name, of in together.items()}


def draw_empty(chosen: Chosen) -> None:
    """What will appear here, and how to make it appear."""
    if chosen.sweep is not None:
        st.info("All runs of this sweep were deleted.", icon=":material/delete:")
        return
    st.info(
        "Choose two runs or more: their curves appear on the same charts, with the fields in which they differ and the "
        "result of each.",
        icon=":material/stacked_line_chart:",
    )
    with st.container(horizontal=True):
        link("runs", "All runs", icon=":material/list:")
        link("sweep", "New sweep", icon=":material/add:")
    draw_sweeps()


def follow(chosen: Chosen) -> None:
    """Draw the page again when a run has moved."""
    with guard():
        if chosen.sweep is not None:
            now = runs_of(chosen.sweep.id)
        else:
            now = [run if run.status in TERMINAL else client().run(run.id) for run in chosen.runs]
    if [(run.id, moment(run)) for run in now] != [(run.id, moment(run)) for run in chosen.runs] and browser_knows():
        draw_again()


main()
