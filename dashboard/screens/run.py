"""One run: is it learning, and why."""

from collections.abc import Callable, Mapping

import streamlit as st

from backend.contract.config import RECORDED
from backend.contract.records import TERMINAL, Run
from dashboard.components.address import GROUPS, OVERVIEW, PROMPTS, SEARCH, number_in_address, open_tab, tab_in_address
from dashboard.components.live import in_turn, moment, tick_of_whole_page
from dashboard.components.style import apply_style, count_on_tab
from dashboard.components.synced import on_choice, sync
from dashboard.health import HEALTH, draw_health, health_of
from dashboard.people.agreement import draw_agreement
from dashboard.prompts.tab import draw_prompts
from dashboard.replay.tab import EXPLANATION, draw_explanation
from dashboard.run.checkpoints import draw_checkpoints
from dashboard.run.configuration import draw_configuration
from dashboard.run.groups import draw_groups
from dashboard.run.header import draw_header
from dashboard.run.log import draw_level_filter, draw_log
from dashboard.run.overview import draw_overview
from dashboard.run.paid_for import PAID_FOR, draw_paid_for
from dashboard.run.pairs import draw_pairs
from dashboard.run.ranks import PROCESSES, draw_ranks, has_several
from dashboard.search import draw_search
from dashboard.session import guard, lead_back, run_or_none
from dashboard.text import one_line

PAIRS, JUDGEMENT, CONFIGURATION, LOG, CHECKPOINTS = "Pairs", "Judgement", "Configuration", "Log", "Checkpoints"
# These follow the run's steps. The others do not move while a person types, or tick by themselves.
MOVING: Mapping[str, Callable[[Run], None]] = {
    OVERVIEW: draw_overview,
    GROUPS: draw_groups,
    PROMPTS: draw_prompts,
    PAIRS: draw_pairs,
    EXPLANATION: draw_explanation,
    SEARCH: draw_search,
    HEALTH: draw_health,
    PROCESSES: draw_ranks,
}
STANDING: Mapping[str, Callable[[Run], None]] = {
    PAID_FOR: draw_paid_for,
    JUDGEMENT: draw_agreement,
    CONFIGURATION: draw_configuration,
    CHECKPOINTS: draw_checkpoints,
}
TABS = (
    *(name for name in MOVING if name not in (PAIRS, EXPLANATION, PROCESSES)),
    PAID_FOR,
    JUDGEMENT,
    CONFIGURATION,
    LOG,
    CHECKPOINTS,
)
TABS_OF_A_RECORDED_RUN = tuple(name for name in TABS if name != CHECKPOINTS)  # its weights are not here
TABS_ON_PAIRS = (OVERVIEW, PAIRS, HEALTH, CONFIGURATION, LOG, CHECKPOINTS)
TABS_OF_A_SAMPLE = (GROUPS, CONFIGURATION, LOG)
TABS_OF_A_REPLAY = (EXPLANATION, GROUPS, CONFIGURATION, LOG)
TABS_OF = {"grpo": TABS, "sample": TABS_OF_A_SAMPLE, "replay": TABS_OF_A_REPLAY, RECORDED: TABS_OF_A_RECORDED_RUN}


@in_turn()
def main() -> None:
    """Draw the header, the tabs, and the open tab."""
    run_id = number_in_address("id")
    if run_id is None:
        lead_back("This address does not name a run.")
    with guard():
        run = run_or_none(run_id)
    if run is None:
        lead_back(f"Run {run_id} does not exist; it may have been deleted.")
    st.set_page_config(page_title=f"{one_line(run.name)} · Groupscope")
    apply_style()
    names = TABS_OF.get(run.kind, TABS_ON_PAIRS)
    if has_several(run):
        names = (*names, PROCESSES)
    name = tab_in_address(names)
    live = bool(st.session_state.get("live", True))
    tick = tick_of_whole_page() if live and run.status not in TERMINAL else None
    st.fragment(draw_header, run_every=tick)(run.id, moment(run), live, follows=name in MOVING)
    if HEALTH in names:
        count_on_tab("tab", names.index(HEALTH), len(health_of(run).warnings))
    sync("tab", name)  # the address leads, also when the browser goes back
    tabs = st.tabs(names, key="tab", on_change=on_choice("tab", open_tab))
    with tabs[names.index(name)]:
        if name in MOVING:
            st.fragment(_draw_moving)(name, names, run)
        elif name in STANDING:
            STANDING[name](run)
        else:
            draw_level_filter()
            st.fragment(draw_log, run_every=tick)(run)


def _draw_moving(name: str, names: tuple[str, ...], run: Run) -> None:
    """Draw a tab that follows the run; an action inside it draws only that tab again.

    Leaves for the tab that the address names by now: one of its own clicks opens another, or the browser sent a click on the
    tabs in one message with what happened in here, for which Streamlit draws this part alone.
    """
    if tab_in_address(names) != name:
        st.rerun()
    MOVING[name](run)


main()
