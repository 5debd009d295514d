"""One run in the list: how it stands, how far it is, how good it is."""

from collections.abc import Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from backend.contract.client import ApiError
from backend.contract.records import TERMINAL, Run
from dashboard.charts.sparkline import sparkline
from dashboard.format import (
    REWARD,
    absolute,
    ago,
    count,
    counted,
    duration,
    improvement,
    model_name,
    plain,
    recent_reward,
)
from dashboard.health import HEALTH, WARNING_ICON, said
from dashboard.runs.actions import show_actions, show_tick
from dashboard.session import client, guard, in_the_way, link, zone
from dashboard.status import look, phase_in_words
from dashboard.stored import get, number_at, planned_steps

WIDTHS = (0.25, 1, 0.45, 2.4, 2.7, 2.25, 2.2, 1.25)
_WIDTHS_FAILED = (*WIDTHS[:5], WIDTHS[5] + WIDTHS[6], WIDTHS[7])
_SOLVED = "eval/pass@1"
_RANKED = "eval/accuracy"
_CHECK, _HOUR = 10.0, 3600.0  # seconds


def show_runs(runs: Sequence[Run]) -> None:
    """Draw a row for each run, and then the warnings of each: these take a check, and no row waits for it."""
    for run, cell in [(run, _show_run(run)) for run in runs]:
        warnings = _warnings(run)
        if warnings:
            with cell:
                link(
                    "run",
                    count(len(warnings)),
                    icon=WARNING_ICON,
                    help=" · ".join(warnings),
                    id=run.id,
                    tab=HEALTH.lower(),
                )


def _warnings(run: Run) -> list[str]:
    """The titles of the run's warnings, as Markdown; an ended run is checked once, a moving one every few seconds."""
    if run.status != "running" and not run.progress.step:
        return []
    with guard():
        try:
            return _of_ended(run.id, run.attempt) if run.status in TERMINAL else _of_moving(run.id)
        except ApiError:  # it was deleted meanwhile
            return []


@st.cache_data(ttl=_HOUR, max_entries=2000, show_spinner=False)
def _of_ended(run_id: int, attempt: int) -> list[str]:  # noqa: ARG001  (a run that went on is a new key)
    return _check(run_id)


@st.cache_data(ttl=_CHECK, max_entries=200, show_spinner=False)
def _of_moving(run_id: int) -> list[str]:
    return _check(run_id)


def _check(run_id: int) -> list[str]:
    return [said(hint.title) for hint in client().health(run_id).warnings]


def _show_run(run: Run) -> DeltaGenerator:
    """Draw the row; an error takes the place of progress and result. Returns the cell of the warnings."""
    failure = run.error if run.status == "failed" else None
    with st.container(key=f"row-{run.id}"):
        widths = _WIDTHS_FAILED if failure else WIDTHS
        tick, state, health, name, what, *middle, actions = st.columns(widths, vertical_alignment="center", gap="small")
        with tick:
            show_tick(run.id)
        place = f" {run.queue_position}" if run.queue_position else ""
        state.markdown(f"{look(run).markdown}:gray[{place}]")
        with name:
            link("run", run.name, id=run.id, help=_times(run))
        source = get(run.config, "model.source")
        recipe = run.config.get("recipe") or get(run.config, "trainer.name") or run.kind.replace("_", " ")
        model = model_name(str(source)) if source else ""
        processes = int(number_at(run.config, "compute.processes", 1))
        several = counted(processes, "process", "processes") if processes > 1 else ""
        fork = f"fork of #{run.parent_id} at {count(run.forked_at)}" if run.forked_at is not None else ""
        about = " · ".join(plain(str(part)) for part in (f"#{run.id}", fork, recipe, model, several) if part)
        tags = "".join(f" :gray-badge[{plain(tag)}]" for tag in run.tags[:3])
        what.markdown(f":gray[{about}]{tags}")
        if failure:
            middle[0].markdown(f":red[{plain(failure.message)}]")
        else:
            with middle[0]:
                _show_progress(run)
            with middle[1]:
                _show_result(run)
        with actions:
            show_actions(run)
    return health


def _times(run: Run) -> str:
    lines = [f"created {ago(run.created_at)} ({absolute(run.created_at, zone())})"]
    if run.started_at:
        lines.append(f"started {ago(run.started_at)}")
    if run.finished_at:
        lines.append(f"ended {ago(run.finished_at)}")
    if run.worker:
        lines.append(f"worker {run.worker}")
    return plain(" · ".join(lines))


def _show_progress(run: Run) -> None:
    progress, total = run.progress, planned_steps(run)
    steps = f"{count(progress.step)} / {count(total)}" if total else counted(progress.step, "step")
    if run.status in TERMINAL:
        done = counted(progress.step, "step") if run.status == "finished" or not total else f"{steps} steps"
        trained = None if run.trained_seconds is None else f"trained for {duration(run.trained_seconds)}"
        ended = ago(run.finished_at) if run.finished_at else None
        st.caption(" · ".join(part for part in (done, trained, ended) if part))
    elif run.status == "queued" and not progress.step:
        first = "waits for a worker that can take it" if in_the_way(run.id) else "starts next"
        st.caption(first if run.queue_position == 1 else f"{count((run.queue_position or 1) - 1)} before it")
    else:
        left = (
            f" · {duration(progress.eta_seconds)} left"
            if total and progress.eta_seconds and run.status == "running" and run.requested == "nothing"
            else ""
        )
        phase = ""  # inside the step: something moves on the page during a long step, too
        if run.status == "running" and progress.phase and progress.done is not None and progress.total:
            done = f"{count(progress.done)} of {count(progress.total)}"
            phase = f" :gray[· {phase_in_words(progress.phase)} {done}]"
        words = f":small[{steps}{left}{phase}]"
        if total:
            st.progress(min(1.0, progress.step / total), text=words)
        else:
            st.markdown(words)


def _show_result(run: Run) -> None:
    """The reward of the last steps with its course; for an ended run what it learned on held-out prompts."""
    learned = {_SOLVED: "pass@1", _RANKED: "held-out pairs"}
    measured = next((name for name in learned if run.summary.get(name) is not None), None)
    if measured is not None and (run.status in TERMINAL or "reward" not in run.summary):
        first, arrow, latest = improvement(run.summary, measured).rpartition(" → ")
        st.markdown(f":gray[{learned[measured]}] {first}{arrow}**{latest}**")
    elif "reward" in run.summary:
        with st.container(horizontal=True, vertical_alignment="center", gap="small", wrap=False):
            st.markdown(f":gray[{REWARD.lower()}] **{recent_reward(run)}**", width="content")
            drawn = sparkline(run.reward_sparkline)
            if drawn:
                st.image(drawn, width=96)
