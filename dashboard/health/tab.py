"""The health of a run: each hint as a card with its evidence, and which rules were looked at."""

import streamlit as st

from backend.contract.health import CheckedRule, Health
from backend.contract.records import Run
from dashboard.format import counted
from dashboard.health.behind import go_to, leave_if_asked
from dashboard.health.card import CHARTS, WARNING, Curves, draw_card, said
from dashboard.health.figure import shown_steps
from dashboard.health.looked_at import health_of, looks_every
from dashboard.session import client, guard

HEALTH = "Health"
POINTS = 200


def health_label(run: Run) -> str:
    """What the tab is called: with the number of warnings, where there are some."""
    warnings = len(health_of(run).warnings)
    return f"{HEALTH} · {warnings}" if warnings else HEALTH


def draw_health_line(run: Run) -> None:
    """One line that names what fired and leads to the tab; nothing where nothing did."""
    st.fragment(_draw_line, run_every=looks_every(run))(run)


def draw_health(run: Run) -> None:
    """All hints, warnings first, and the rules that kept silent."""
    st.fragment(_draw, run_every=looks_every(run))(run)


def _draw_line(run: Run) -> None:
    leave_if_asked()
    warnings = health_of(run).warnings
    if not warnings:
        return
    with st.container(horizontal=True, vertical_alignment="center", key="health-line"):
        st.markdown(f"{WARNING} {' · '.join(said(hint.title) for hint in warnings)}", width="content")
        st.button(
            "See why",
            icon=":material/arrow_forward:",
            key="see-health",
            on_click=go_to,
            args=(HEALTH,),
            type="tertiary",
        )


def _draw(run: Run) -> None:
    leave_if_asked()
    health = health_of(run)
    if not run.progress.step and not health.items:
        st.info(
            "No steps yet. Hints appear here as soon as something looks unusual, each with its rule and its numbers.",
            icon=":material/hourglass_empty:",
        )
        return
    if not health.warnings:
        st.markdown(f":green[:material/check_circle:] **No warnings.** {_how_many(health)}")
    series = _fetch(run, health)
    for hint in health.items:
        draw_card(run, hint, series)
    _draw_rules(health)


def _how_many(health: Health) -> str:
    known = sum(rule.missing is None for rule in health.checked)
    unknown = len(health.checked) - known
    waiting = f"; {unknown} could not be checked yet, or lack their metrics" if unknown else ""
    return f"{counted(known, 'rule')} {'was' if known == 1 else 'were'} checked{waiting}."


def _fetch(run: Run, health: Health) -> Curves:
    """The curves behind the hints, by the steps that are shown of them."""
    wanted: dict[tuple[int, int], set[str]] = {}
    for hint in health.items:
        if hint.evidence is not None:
            wanted.setdefault(shown_steps(hint.evidence), set()).update(hint.evidence.metrics[:CHARTS])
    with guard():
        return {
            (first, last): client()
            .metrics(run.id, names=sorted(names), from_step=first, to_step=last, max_points=POINTS)
            .series
            for (first, last), names in wanted.items()
        }


def _draw_rules(health: Health) -> None:
    fired = {hint.code for hint in health.items}
    silent = [rule for rule in health.checked if rule.code not in fired]
    with st.expander("Rules that were looked at and kept silent", icon=":material/rule:", key="silent-rules"):
        for rule in silent:
            st.markdown(_about(rule))


def _about(rule: CheckedRule) -> str:
    sign = ":gray[:material/remove:]" if rule.missing else ":green[:material/check:]"
    unknown = f" Not checked: {said(rule.missing)}." if rule.missing else ""
    return f"{sign} **{said(rule.title)}** :gray[{said(rule.rule)}.{unknown}]"
