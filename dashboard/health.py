"""The health of a run: each hint as a card with its evidence, and which rules were checked."""

from collections.abc import Mapping
from typing import TypeAlias

import streamlit as st

from backend.contract.health import Evidence, Health, Hint
from backend.contract.records import TERMINAL, Run, Series
from dashboard.charts.figure import Figure
from dashboard.charts.lines import Look, line_figure
from dashboard.charts.meaning import meaning
from dashboard.charts.palette import INK
from dashboard.charts.series import long_table
from dashboard.components.address import GROUPS, SEARCH, open_tab, write
from dashboard.components.chart import heading, show
from dashboard.format import count, counted, plain
from dashboard.group.rows import WORDS
from dashboard.search import FIELDS
from dashboard.session import client, guard
from dashboard.status import FINISHED
from dashboard.text import one_line

SECONDS = 5.0
CHARTS = 2
WARNING_ICON = ":material/warning:"
WARNING = f":orange[{WARNING_ICON}]"
ICONS = {"warning": WARNING, "note": ":blue[:material/info:]"}
Curves: TypeAlias = Mapping[tuple[int, int], Mapping[str, Series]]
"""By the steps that a chart shows, then by metric."""
HEALTH = "Health"
POINTS = 200


def health_of(run: Run) -> Health:
    """The run's hints, at most a few seconds old."""
    with guard():
        return _health(run.id, run.status, run.progress.step)


def seconds_between_checks(run: Run) -> float | None:
    """Seconds between two reads; None if the page does not follow. A silent worker makes no steps, so they cannot be the clock."""
    return SECONDS if run.status not in TERMINAL and st.session_state.get("live", True) else None


@st.cache_data(ttl=SECONDS, max_entries=64, show_spinner=False)
def _health(run_id: int, status: str, step: int) -> Health:  # noqa: ARG001  (a run that moved is a new key)
    return client().health(run_id)


def draw_card(run: Run, hint: Hint, curves: Curves) -> None:
    """Draw the hint; `curves` has the first metrics of its evidence, over the steps that its charts show."""
    with st.container(border=True, key=f"hint-{hint.code}"):
        words, charts = st.columns([5, 4], gap="medium")
        with words:
            st.markdown(f"{ICONS[hint.level]} **{said(hint.title)}**")
            st.markdown(said(hint.measured))
            st.markdown(f"**What to do.** {said(hint.advice)}")
            st.caption(f"Rule: {said(hint.rule)}.")
            draw_ways(run, hint)
        if hint.evidence is not None:
            known = curves.get(shown_steps(hint.evidence), {})
            drawn = [name for name in hint.evidence.metrics[:CHARTS] if name in known]
            for place, name in zip(charts.columns(max(len(drawn), 1)), drawn, strict=False):
                with place:
                    st.markdown(f":small[{heading(plain(meaning(name).title), meaning(name).unit)}]")
                    figure = evidence_figure(name, known[name], hint.evidence)
                    show(
                        figure,
                        key=f"behind-{run.id}-{hint.code}-{name}",
                        about=f"{meaning(name).title}: {hint.title}",
                        file=f"run-{run.id}-{hint.code}-{name}",
                    )


def said(text: str) -> str:
    """A hint's words as plain text, since they contain names that others wrote."""
    return plain(one_line(text))


def draw_health_line(run: Run) -> None:
    """Draw one line that names the warnings and links to the tab, if there are warnings."""
    st.fragment(_draw_line, run_every=seconds_between_checks(run))(run)


def draw_health(run: Run) -> None:
    """Draw all hints, warnings first, and the rules that found nothing."""
    st.fragment(_draw, run_every=seconds_between_checks(run))(run)


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
        known = sum(rule.missing is None for rule in health.checked)
        unknown = len(health.checked) - known
        waiting = f"; {unknown} could not be checked yet, or had no metrics" if unknown else ""
        checked = f"{counted(known, 'rule')} {'was' if known == 1 else 'were'} checked{waiting}."
        st.markdown(f":green[:material/check_circle:] **No warnings.** {checked}")
    series = _fetch(run, health)
    for hint in health.items:
        draw_card(run, hint, series)
    fired = {hint.code for hint in health.items}
    with st.expander("Rules that found nothing", icon=":material/rule:", key="silent-rules"):
        for rule in health.checked:
            if rule.code not in fired:
                sign = ":gray[:material/remove:]" if rule.missing else ":green[:material/check:]"
                found = f"not checked: {said(rule.missing)}" if rule.missing else "no sign of it"
                st.markdown(f"{sign} **{said(rule.title)}:** :gray[{found}. Rule: {said(rule.rule)}.]")


def _fetch(run: Run, health: Health) -> Curves:
    """The curves behind the hints, by the steps that their charts show."""
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


BEFORE = 3  # times the evidence's own length, shown before it
HEIGHT = 110
_FILTERS = ("show", "bookmarked", "sort", "search", "step")  # of the groups, in the address
_LEAVE = "leave-health"


def shown_steps(evidence: Evidence) -> tuple[int, int]:
    """The first and the last step of its charts."""
    length = evidence.to_step - evidence.from_step + 1
    return max(0, evidence.from_step - BEFORE * length), max(evidence.to_step, evidence.from_step + 1)


def evidence_figure(name: str, series: Series, evidence: Evidence) -> Figure:
    """One metric; a line marks where the evidence begins, unless all of the chart is evidence."""
    about = meaning(name)
    first, last = shown_steps(evidence)
    look = Look(
        colours=((about.title, INK),),
        axis=about.axis,
        x_axis="~d",
        x_domain=(first, last),
        from_zero=True,
        mark=evidence.from_step if evidence.from_step > first else None,
        height=HEIGHT,
    )
    return line_figure(look, long_table({name: series}, {name: about.title}, 0.0))


def draw_ways(run: Run, hint: Hint) -> None:
    """Draw links to the groups of the step that shows it best, and to the completions of all its steps if they end alike."""
    seen = hint.evidence
    if seen is None or not run.by_groups:
        return
    with st.container(horizontal=True):
        if seen.finish_reason is not None:
            asked = {
                "finish": FINISHED[seen.finish_reason],
                "steps_from": str(seen.from_step),
                "steps_to": str(seen.to_step),
            }
            ended = "cut at the token limit" if seen.finish_reason == "length" else "that ended by themselves"
            label = f"Find the completions {ended} (steps {count(seen.from_step)} to {count(seen.to_step)})"
            _draw_way(hint, SEARCH, label, ":material/manage_search:", asked)
        if seen.step is not None:
            state = WORDS[seen.state] if seen.state else None
            label = f"Open the {f'{state} ' if state else ''}groups of step {count(seen.step)}"
            asked = {"step": str(seen.step)} | ({"show": state} if state else {})
            _draw_way(hint, GROUPS, label, ":material/grid_view:", asked)


def go_to(tab: str, **asked: str) -> None:
    """Open a tab with only these filters. This is a callback: `leave_if_asked` draws the page again."""
    for name in (*FIELDS, *_FILTERS):
        st.session_state.pop(name, None)
    write(**dict.fromkeys((*FIELDS, *_FILTERS)) | asked)
    open_tab(tab)
    st.session_state[_LEAVE] = True


def leave_if_asked() -> None:
    """Draw the whole page again if a click inside a part of it asked for another tab."""
    if st.session_state.pop(_LEAVE, False):
        st.rerun()


def _draw_way(hint: Hint, tab: str, label: str, icon: str, asked: dict[str, str]) -> None:
    st.button(label, icon=icon, key=f"way-{hint.code}-{tab}", on_click=go_to, args=(tab,), kwargs=asked)
