"""Which runs are compared, picked one by one or a whole sweep, and how far they are. The address says which."""

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from backend.contract.records import TERMINAL, Run, Sweep
from dashboard.components.address import number_in_address, numbers, write, write_only
from dashboard.components.synced import on_choice, sync
from dashboard.format import counted, duration, plain
from dashboard.session import carried_out, client, guard, link, run_or_none
from dashboard.text import one_line

MOST, LISTED = 20, 200
SWEEPS = 20


@dataclass(frozen=True)
class Chosen:
    """The runs, oldest first, and their sweep, if one was chosen."""

    runs: list[Run]
    sweep: Sweep | None = None

    @property
    def moving(self) -> bool:
        """Whether a run may still change."""
        return any(run.status not in TERMINAL for run in self.runs)


def choose() -> Chosen:
    """The runs of the sweep in the address, or those that a person chooses by name or number."""
    sweep_id = number_in_address("sweep")
    if sweep_id is not None:
        with guard():
            sweep = client().sweep(sweep_id)
            return Chosen(runs_of(sweep.id), sweep)
    return Chosen(_choose_runs())


def runs_of(sweep_id: int) -> list[Run]:
    """The runs of a sweep as they are now, oldest first."""
    return client().runs(sweep=sweep_id, limit=200).items[::-1]


def label(run: Run) -> str:
    """A run's name and number: unique, on one line."""
    return f"{one_line(run.name)} #{run.id}"


def draw_sweep(sweep: Sweep) -> None:
    """The sweep's name, and links away from it."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.subheader(plain(sweep.name), width="content", anchor=False)
        st.space("stretch")
        st.button("All sweeps", icon=":material/list:", type="tertiary", key="all-sweeps", on_click=write_only)
        link("sweep", "New sweep", icon=":material/add:")


def draw_progress(sweep: Sweep, runs: list[Run]) -> None:
    """How far the sweep is, and a button to stop it."""
    ended = sum(run.status in TERMINAL for run in runs)
    with st.container(horizontal=True, vertical_alignment="center", key="sweep-progress"):
        gone = f" · {counted(sweep.total - len(runs), 'run')} deleted" if sweep.total > len(runs) else ""
        if ended == len(runs):
            st.caption(f"{how_far(runs)}{gone}")
        else:
            st.progress(ended / len(runs), text=f":small[{how_far(runs)}{gone}]", width="stretch")
            st.button("Stop all", icon=":material/stop:", key="stop-sweep", on_click=_stop, args=(sweep.id,))


def draw_sweeps() -> None:
    """The latest sweeps, to choose from."""
    with guard():
        sweeps = client().sweeps(limit=SWEEPS).items
    if not sweeps:
        return
    st.subheader("Sweeps", anchor=False)
    for sweep in sweeps:
        states = ", ".join(f"{count} {status}" for status, count in sorted(sweep.statuses.items()))
        with st.container(horizontal=True, vertical_alignment="center"):
            st.button(
                plain(one_line(sweep.name)),
                icon=":material/stacked_line_chart:",
                type="tertiary",
                key=f"sweep-{sweep.id}",
                # not a link, since one to the open page would not change the browser's address
                on_click=write_only,
                kwargs={"sweep": sweep.id},
            )
            st.caption(f"{counted(sweep.total, 'run')}: {states or 'all deleted'}")


def _stop(sweep_id: int) -> None:
    carried_out(lambda: client().stop_sweep(sweep_id))


def _choose_runs() -> list[Run]:
    every = numbers("runs", LISTED)
    asked, rest = every[:MOST], every[MOST:]
    with guard():
        known = {run.id: run for run in client().runs(kind="training", limit=LISTED).items}
        for run_id in asked:  # those too old for the list are fetched one by one
            if run_id not in known and (run := run_or_none(run_id)) is not None:
                known[run_id] = run
    wanted = [run_id for run_id in asked if run_id in known]
    sync("compared", wanted)
    st.multiselect(
        "Runs",
        list(known),
        key="compared",
        format_func=lambda run_id: label(known[run_id]),
        max_selections=MOST,
        placeholder="Choose runs by name or number",
        on_change=on_choice("compared", lambda chosen: write(runs=",".join(map(str, chosen)) or None)),
    )
    gone = [f"run {run_id}" for run_id in asked if run_id not in known]
    if gone:
        st.caption(f"Deleted: {', '.join(gone)}.")
    if rest:
        names = (label(known[one]) if one in known else f"run {one}" for one in rest)
        st.caption(plain(f"{MOST} runs are drawn at most. Not drawn: {', '.join(names)}."))
    return [known[run_id] for run_id in wanted]


def how_far(runs: Sequence[Run]) -> str:
    """7 of 45 finished · 2 failed · about 20 min left."""
    parts = [f"{sum(run.status == 'finished' for run in runs)} of {len(runs)} finished"]
    for status in ("failed", "stopped", "running"):
        count = sum(run.status == status for run in runs)
        parts += [f"{count} {status}"] if count else []
    left = seconds_left(runs)
    return " · ".join([*parts, f"about {roughly(left)} left"] if left else parts)


def roughly(seconds: float) -> str:
    """A span of time, no finer than an estimate deserves: 40 s, 20 min, 1 h 05 m."""
    return f"{round(seconds / 60)} min" if 90 <= seconds < 3570 else duration(seconds)


def seconds_left(runs: Sequence[Run]) -> float | None:
    """The time left, from the pace of the finished runs or of one that is running; None while no pace is known."""
    waiting = [run for run in runs if run.status not in TERMINAL]
    pace = _seconds_per_step(runs)
    if not waiting or pace is None:
        return None
    steps = sum(run.progress.total_steps - run.progress.step for run in waiting)
    return steps * pace / max(1, sum(run.status == "running" for run in runs))


def _seconds_per_step(runs: Sequence[Run]) -> float | None:
    seconds = steps = 0.0
    for run in runs:
        if run.status == "finished" and run.trained_seconds is not None:
            seconds += run.trained_seconds
            steps += run.progress.total_steps
    if steps:
        return seconds / steps
    for run in runs:
        left = run.progress.total_steps - run.progress.step
        if run.status == "running" and run.progress.eta_seconds and left > 0:
            return run.progress.eta_seconds / left
    return None


def runs_and_time(count: int, seconds: float | None, *, with_evaluations: bool = True) -> str:
    """45 runs · about 1 h 05 m with one worker."""
    left_out = "" if with_evaluations else ", evaluations not counted"
    return f"{counted(count, 'run')} · " + (
        f"about {roughly(seconds)} with one worker{left_out}"
        if seconds
        else "how long is not known yet: no similar step was measured"
    )
