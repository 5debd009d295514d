"""The processes that train a run together: what each does at this moment, which one the others wait for, and what each did in every step."""

import streamlit as st

from backend.contract.records import (
    BY_RANK,
    ENOUGH_RANK_STEPS,
    MOST_BY_RANK,
    MOST_RANKS,
    PHASES,
    RANK_STEPS,
    SILENT_SECONDS,
    SLOWER,
    SLOWER_SECONDS,
    TERMINAL,
    Rank,
    Ranks,
    Run,
)
from dashboard.charts.palette import CATEGORICAL
from dashboard.charts.training import Panel, training_figure
from dashboard.components.chart import heading, show
from dashboard.components.live import tick_of_whole_page
from dashboard.components.table import Column, draw
from dashboard.format import MISSING, count, counted, duration, plain, size
from dashboard.health import go_to, leave_if_asked
from dashboard.session import client, guard
from dashboard.status import phase_in_words
from dashboard.stored import number_at

PROCESSES = "Processes"
_OLD_SECONDS = 10.0  # a worker describes its processes every two
_IN_CHARTS = 8  # lines at first; more are hard to tell apart
_POINTS = 250
_TALLEST = 640  # pixels of the table
_SLOW_ICON = ":material/hourglass_top:"
_RULE = (
    f"A process holds the others up if the worker has not heard from it for {SILENT_SECONDS:g} s while it hears others, or if it works "
    f"{SLOWER:g} times as long in a step as the median of all, and at least {SLOWER_SECONDS:g} s longer, by the median of its last "
    f"{RANK_STEPS} steps. Time in which it waits for the others does not count."
)
_FIGURES = {
    "seconds": ("Seconds of work in each step", "Without waiting for the others. Healthy: all alike.", "seconds"),
    "tokens": (
        "Sampled tokens in each step",
        "Each process samples its share of the groups. Healthy: about alike.",
        "tokens",
    ),
}


def has_several(run: Run) -> bool:
    """Whether several processes train it."""
    return number_at(run.config, "compute.processes", 1) > 1


def draw_slow_line(run: Run) -> None:
    """Draw one line about the processes that hold the others up, if some do, with a link to the tab."""
    if has_several(run) and _follows(run):
        st.fragment(_draw_line, run_every=tick_of_whole_page())(run)


def draw_ranks(run: Run) -> None:
    """Draw the processes as they are now while the run is under way, and what each did in the steps so far."""
    if run.status == "running":
        st.fragment(_draw_now, run_every=tick_of_whole_page() if _follows(run) else None)(run)
    else:
        processes = counted(int(number_at(run.config, "compute.processes", 1)), "process", "processes")
        train = "trained" if run.status in TERMINAL else "train"
        st.caption(f"{processes} {train} this run together. They are listed here while it runs.")
    _draw_steps(run)


def _follows(run: Run) -> bool:
    return run.status not in TERMINAL and bool(st.session_state.get("live", True))


def _draw_line(run: Run) -> None:
    leave_if_asked()
    with guard():
        said = _slow_in_words(client().ranks(run.id))
    if said:
        with st.container(horizontal=True, vertical_alignment="center", key="slow-line"):
            st.markdown(f":orange[{_SLOW_ICON}] {plain(' '.join(said))}", width="content")
            arrow = ":material/arrow_forward:"
            st.button("See all", icon=arrow, key="see-ranks", on_click=go_to, args=(PROCESSES,), type="tertiary")


def _draw_now(run: Run) -> None:
    with guard():
        ranks = client().ranks(run.id)
    if not ranks.items:
        st.info("The processes are starting. Each appears here as soon as it says what it does.", icon=_SLOW_ICON)
        return
    slow = _slow_in_words(ranks)
    for words in slow:
        st.warning(plain(words), icon=_SLOW_ICON)
    if ranks.age_seconds > _OLD_SECONDS:
        st.warning(
            f"This is how the worker described them {duration(ranks.age_seconds)} ago.", icon=":material/sensors_off:"
        )
    elif not slow:
        st.markdown(":green[:material/check_circle:] No process holds the others up.", help=plain(_RULE))
    phases = [phase for phase in PHASES if any(phase in one.worked for one in ranks.items)]
    hosts = {one.host for one in ranks.items}
    columns = [
        Column[Rank]("process", lambda one: one.rank, 70, kind="number"),
        *([Column[Rank]("machine", lambda one: one.host or MISSING, 130)] if len(hosts) > 1 else []),
        Column[Rank]("pid", lambda one: one.pid, 80, "Its process id on its machine.", "number"),
        Column[Rank]("now", _now, 300),
        Column[Rank]("for", lambda one: duration(_for(one)), 80, kind="figure"),
        Column[Rank](
            "memory",
            lambda one: size(one.memory_bytes),
            90,
            "Of a GPU its tensors, else what is resident, with Python and PyTorch themselves.",
            "figure",
        ),
        Column[Rank]("at most", lambda one: size(one.peak_bytes), 90, "The most memory that it has held.", "figure"),
        Column[Rank](
            "a step",
            lambda one: _seconds(one.step_seconds),
            80,
            f"Work in a step, the median of the last {RANK_STEPS}, once there are {ENOUGH_RANK_STEPS}.",
            "figure",
        ),
        *(_column_of(phase) for phase in phases),
    ]
    draw(ranks.items, columns, key="ranks", height=_TALLEST if len(ranks.items) > 16 else "content")
    shown = ""
    if len(ranks.items) < ranks.count:
        shown = f"{count(len(ranks.items))} of {count(ranks.count)} processes have spoken. "
    if ranks.count > len(ranks.items) >= MOST_RANKS:
        shown = f"{count(len(ranks.items))} of {count(ranks.count)} processes: those that work longest. "
    memory = f"All together hold {size(ranks.memory_bytes)}. " if ranks.memory_bytes else ""
    st.caption(
        f"{shown}{memory}A step is the median of the last {RANK_STEPS}, and its parts are those of the last one alone; neither counts waiting for the others."
    )


def _column_of(phase: str) -> Column[Rank]:
    title = "reference" if phase == "reference" else PHASES[phase].split()[0]
    help = f"{PHASES[phase].capitalize()}, in the last step."
    return Column(title, lambda one: _seconds(one.worked.get(phase)), 90, help, "figure")


def _now(one: Rank) -> str:
    words = "starting" if one.phase is None else phase_in_words(one.phase)
    words += f" {count(one.done)} / {count(one.total)}" if one.done is not None and one.total else ""
    if one.slow:
        return f"⚠ {'not heard since ' if one.slow == 'silent' else ''}{words}"
    return "waits for the others" if one.waits_seconds else words


def _for(one: Rank) -> float:
    """Seconds since it was heard, for which it waits, or since its phase began."""
    return one.silent_seconds if one.slow == "silent" else one.waits_seconds or one.phase_seconds


def _seconds(value: float | None) -> str:
    if value is None:
        return MISSING
    return "< 0.01 s" if 0 < value < 0.01 else f"{value:,.2f} s"


def _slow_in_words(ranks: Ranks) -> list[str]:
    """A sentence for each process that holds the others up."""
    said = []
    usual = "the other one" if ranks.count == 2 else "the median is"
    for one in ranks.items:
        if one.slow == "silent":
            said.append(
                f"Process {one.rank} has not been heard for {duration(one.silent_seconds)}: the others wait for it."
            )
        elif one.slow == "slower":
            said.append(
                f"Process {one.rank} works {_seconds(one.step_seconds)} in a step, {usual} {_seconds(ranks.step_seconds)}: "
                "the others wait for it."
            )
    return said


def _draw_steps(run: Run) -> None:
    """A chart for each figure, of the processes that a person chose."""
    known = sorted({int(name.split("/")[1]) for name in run.summary if name.startswith(BY_RANK)})
    if not known:
        if run.progress.step:
            st.caption(f"Of runs with more than {MOST_BY_RANK} processes no figures by process are stored.")
        return
    chosen = known
    if len(known) > _IN_CHARTS:
        chosen = st.multiselect("Processes in the charts", known, default=known[:_IN_CHARTS], key="ranks-in-charts")
    panels = [
        Panel(
            f"rank-{figure}",
            title,
            help,
            {f"{BY_RANK}{rank}/{figure}": f"process {rank}" for rank in chosen},
            {f"process {rank}": CATEGORICAL[rank % len(CATEGORICAL)] for rank in chosen},
            axis="~s" if figure == "tokens" else "~g",
            from_zero=True,
            opens_groups=False,
            unit=unit,
        )
        for figure, (title, help, unit) in _FIGURES.items()
    ]
    with guard():
        names = [name for panel in panels for name in panel.labels]
        series = client().metrics(run.id, names=names, max_points=_POINTS).series if names else {}
    steps = int(number_at(run.config, "budget.steps", run.progress.total_steps))
    for place, panel in zip(st.columns(len(panels)), panels, strict=True):
        with place, st.container(border=True):
            st.markdown(heading(panel.title, panel.unit), help=panel.help)
            show(
                training_figure(panel, series, steps=steps, weight=0.0),
                key=f"{panel.key}-{run.id}",
                about=panel.title,
                file=f"run-{run.id}-{panel.key}",
            )
