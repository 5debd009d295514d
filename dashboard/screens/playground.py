"""Playground: the algorithm in one's hands. Every number comes from the functions that train."""

import streamlit as st

from dashboard.algorithm.estimators import UNKNOWN, stored_estimator
from dashboard.components.address import names, number_in_address, write_only
from dashboard.components.style import apply_style as apply_figures
from dashboard.playground.advantages import draw_advantages
from dashboard.playground.gae import draw_gae
from dashboard.playground.kl import draw_kl
from dashboard.playground.opening import Opening, choose_group, load
from dashboard.playground.style import apply_style
from dashboard.playground.surrogate import draw_surrogate
from dashboard.session import guard, link
from dashboard.text import one_line

MOST = 64  # letters of the prompt in the page's head; the group's page has all of it


def main() -> None:
    """From rewards to advantages, from advantages to the update, and what holds the update back."""
    apply_figures()
    apply_style()
    group_id = number_in_address("group")
    opening = Opening()  # the textbook example, unless the address names a group
    if group_id is not None:
        with guard():
            opening = load(group_id)
    group, prompt = opening.group, one_line(opening.prompt)
    origin = f"Run {group.run_id}, step {group.step}, group {group.index + 1}" if group else "Textbook example"
    if opening.run is not None and stored_estimator(opening.run.config).kind == UNKNOWN:
        origin += " · its own estimator was not recorded"
    with st.container(horizontal=True, vertical_alignment="center", key="play-head"):
        st.subheader("Playground", width="content", anchor=False)
        st.caption(origin, width="content")
        st.text(prompt if len(prompt) <= MOST else f"{prompt[:MOST]}…", width="stretch")
        if group is not None and opening.run is not None:
            link("group", "The group", icon=":material/open_in_new:", id=group.id)
        if names():
            st.button("Textbook example", icon=":material/restart_alt:", on_click=write_only)
        if st.button("Load a real group", icon=":material/science:"):
            choose_group()
    played = draw_advantages(opening)
    point = draw_surrogate(opening, played)
    draw_kl(opening, point)
    draw_gae()


main()
