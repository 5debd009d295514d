"""The top of a run's page: its name, its state, its progress, and its commands."""

from functools import partial

import streamlit as st

from backend.contract.commands import possible
from backend.contract.config import LOOKS
from backend.contract.records import TERMINAL, Run, RunError
from backend.contract.reward import REWARD_CHANGED
from dashboard.components.address import browser_knows
from dashboard.components.live import Moment, draw_again, in_turn, its_turn, moment
from dashboard.components.style import FIGURES, TITLE
from dashboard.downloads.menu import draw_downloads
from dashboard.format import (
    MISSING,
    REWARD,
    REWARD_HELP,
    ago,
    count,
    counted,
    duration,
    improvement,
    model_name,
    plain,
    reading,
    recent_reward,
)
from dashboard.run.checkpoints import link_as_reward
from dashboard.run.family import draw_family
from dashboard.session import carried_out, client, guard, in_the_way, link, run_now
from dashboard.status import AGAIN, look, phase_in_words
from dashboard.stored import number_at, planned_steps, text_at
from dashboard.text import one_line, show_text

_ADVICE = {
    "process_ended": "Everything before that is kept.",
    "phase_deadline": "If the phase only needed more time, raise the setting that the message names, then press Retry.",
    "disk_full": "Free some space on the worker's disk, then press Retry: the run goes on from its last checkpoint.",
    "worker_lost": "Workers were lost too often. Start one (`groupscope worker`), then press Retry: the run goes on from its "
    "last checkpoint.",
    REWARD_CHANGED: "Configuration shows the text that scored the run so far.",
    "dataset_prompts": "Mend the rows and upload them again; then clone the run and choose the new upload. A retry reads the same rows.",
    "reward_contract": "A reward function returned something it must not. Fix it, then clone the run.",
    "reward_errors": "Too many completions could not be scored. Open the unscored groups to see each error, fix the reward "
    "function or raise its time limit, then clone the run.",
}
_COMMANDS = {
    "pause": ("Pause", ":material/pause:", "Saves a checkpoint at the next step boundary and frees the worker."),
    "resume": ("Resume", ":material/play_arrow:", "Queues the run again; it goes on from its checkpoint."),
    "stop": ("Stop", ":material/stop:", "Ends the run at the next step boundary, with a checkpoint."),
    "stop_at_once": (
        "Stop at once",
        ":material/dangerous:",
        "Does not wait for the step: ends the worker's process, and what came after the last checkpoint is lost.",
    ),
}


@in_turn()
def draw_header(run_id: int, drawn: Moment, live: bool, *, follows: bool) -> None:
    """Draw the header of the run, read again.

    The whole page is drawn again once the run's state differs from the `drawn` one, and at every step if it `follows`.
    """
    with guard():
        run = run_now(run_id)
    with st.container(horizontal=True, vertical_alignment="center", key=TITLE):
        st.text(one_line(run.name), width="stretch")
        st.markdown(look(run).markdown)
        with st.container(horizontal=True, vertical_alignment="center", width="content"):
            _draw_commands(run, live)  # they come and go with the state; the links after them keep their places
        draw_downloads(run)
        if run.from_form:
            clone = "The form, filled in from this run."
            sweep = "Several runs that begin with this one's configuration."
            link("new-run", "Clone", icon=":material/content_copy:", help=clone, clone=run.id)
            link(
                "sweep",
                "Sweep",
                icon=":material/stacked_line_chart:",
                help=sweep,
                base=f"run:{run.id}",
                vary="Settings",
            )
    _origin(run)
    draw_family(run)
    if run.error is not None and run.status in ("failed", "stopped"):
        _reason(run, run.error)
    if run.status == "stopped" and not run.recorded:
        st.caption(f"{look(run).icon} It can go on: press **{AGAIN[run.status][0]}**. {_begins(run)}")
    reasons = in_the_way(run.id) if run.status == "queued" else []
    for reason in reasons:
        st.warning(plain(f"{reason[0].upper()}{reason[1:]}."), icon=":material/hourglass_top:")
    _figures(run, waits=bool(reasons))
    turn = its_turn()  # each tick counts
    if (run.status != drawn.status or (turn and live and follows and moment(run) != drawn)) and browser_knows():
        st.rerun()  # only now: the number is on the screen before what it stands for, and a press on a button is not lost


def _draw_commands(run: Run, live: bool) -> None:
    running = run.status not in TERMINAL
    if running and st.toggle("Live", value=True, key="live", help="If off, the page stands still.") != live:
        st.rerun()
    for verb, change in possible(run).items():
        if change.status == "queued" and verb == "pause":
            continue  # what waits is cancelled or moved, in the list of runs
        shown = change.requested if change.requested == "stop_at_once" else verb
        label, icon, help = _COMMANDS.get(shown) or (*AGAIN[run.status], f"Queues the run again. {_begins(run)}")
        pressed = st.button(label, icon=icon, help=help, key=f"command-{shown}")
        if pressed and carried_out(partial(client().command, run.id, verb)):
            draw_again()
    if run.kind == "reward_model" and run.status == "finished":
        link_as_reward(run, run.progress.step)


def _begins(run: Run) -> str:
    """From where the run goes on if it is queued again."""
    with guard():
        saved = [checkpoint.step for checkpoint in client().checkpoints(run.id)]
    if not saved:
        return "It has no checkpoint, and begins again with the first step."
    step, done = max(saved), run.progress.step
    again = f"; what it did after that, up to step {count(done)}, is done again" if step < done else ""
    return f"It goes on from its last checkpoint, after step {count(step)}{again}."


def _origin(run: Run) -> None:
    """One line with number, recipe, model, worker and times."""
    parts = [f"#{run.id}", text_at(run.config, "recipe"), model_name(text_at(run.config, "model.source", "model"))]
    if run.recorded:
        trainer = " ".join(text_at(run.config, f"trainer.{part}") for part in ("name", "version")).strip()
        parts.append(f"recorded from {trainer}")
    parts.append(f"created {ago(run.created_at)}")
    if run.finished_at and run.trained_seconds is not None:
        parts.append(f"{'took' if run.kind in LOOKS else 'trained for'} {duration(run.trained_seconds)}")
    if run.worker:
        parts.append(f"{run.worker} ({run.device})" if run.device else run.worker)
    if (processes := int(number_at(run.config, "compute.processes", 1))) > 1:
        parts.append(counted(processes, "process", "processes"))
    if run.attempt > 1:
        parts.append(f"attempt {run.attempt} (the Log says how the one before ended)")
    st.caption(" · ".join(plain(part) for part in parts if part))


def _figures(run: Run, *, waits: bool) -> None:
    progress = run.progress
    total = planned_steps(run)
    with st.container(key=FIGURES):
        cells = st.columns(5)
    cells[0].metric("Steps done", f"{count(progress.step)} of {count(total)}" if total else count(progress.step))
    cells[1].metric(*_clock(run, total, waits=waits))
    for cell, (label, value, help) in zip(cells[2:4], _results(run), strict=True):
        cell.metric(label, value, help=help)
    if run.status in TERMINAL:
        cells[4].metric(look(run).word.capitalize(), ago(run.finished_at))
    else:
        cells[4].metric("Now", _activity(run))
    if run.status not in TERMINAL and total:
        inside = 0.0
        if progress.phase == "rollout" and progress.done and progress.total:
            inside = progress.done / progress.total
        st.progress(min(1.0, (progress.step + inside) / total))


def _clock(run: Run, total: int, *, waits: bool) -> tuple[str, str]:
    """What its time is called, and the time; `total` is 0 for a recorded run that does not say how long it is to be."""
    if run.status == "queued":
        place = run.queue_position
        words = f"place {place}" if place and not waits else "waiting"
        return "Queue", "next" if place == 1 and not waits else words
    if run.status in TERMINAL or run.started_at is None:
        return "Took" if run.kind in LOOKS else "Trained for", duration(run.trained_seconds)
    if run.requested != "nothing":  # the time of the steps that it will not do says nothing
        return (
            "Pauses" if run.requested == "pause" else "Stops",
            "at once" if run.requested == "stop_at_once" else "after this step",
        )
    if run.progress.step and run.progress.step == total:
        return "Time left", "finishing"
    return "Time left", duration(run.progress.eta_seconds) if total else MISSING


def _activity(run: Run) -> str:
    """The phase inside a step and the completions done in it, so that a long step is seen to move."""
    progress = run.progress
    if run.status != "running":
        return look(run).word
    if progress.phase is None:
        return "training" if progress.step else "starting"  # a short step goes by between two heartbeats
    phase = phase_in_words(progress.phase)
    if progress.done is None or not progress.total:
        return phase
    return f"{phase.split()[0]} {count(progress.done)} / {count(progress.total)}"  # as much as the figure has room for


def _results(run: Run) -> list[tuple[str, str, str | None]]:
    """The two numbers by which a run of this kind is judged: label, value, help."""
    ordered = "Share of held-out pairs in the right order, first → latest evaluation."
    ranked = ("Held-out pairs", improvement(run.summary, "eval/accuracy"), ordered)
    answered = "Share of held-out prompts answered right, first → latest evaluation."
    right = ("Held-out pass@1", improvement(run.summary, "eval/pass@1"), answered)
    if run.kind == "replay":
        step, start = (count(int(number_at(run.config, name, 0))) for name in ("step", "checkpoint"))
        return [
            (
                "Begins at checkpoint",
                start,
                "Of its run, after as many steps; from there every step is done again. 0 is the beginning.",
            ),
            ("Explains step", step, None),
        ]
    if run.kind == "reward_model":
        margin = reading(run.summary, "margin")
        return [("Margin", margin, "How much higher the chosen completions of a step score."), ranked]
    return [ranked if run.kind == "dpo" else (REWARD, recent_reward(run), REWARD_HELP), right]


def _reason(run: Run, error: RunError) -> None:
    """Why the run failed or had to be ended, what to do, and the traceback, folded."""
    title = ":red[:material/cancel: **This run failed**]"
    if run.status == "stopped":
        title = ":orange[:material/stop_circle: **This run had to be ended by force**]"
    with st.container(border=True, key="failure"):
        st.markdown(title)
        show_text(error.message)
        st.markdown(_ADVICE.get(error.code, "Clone the run, change what the message names, and start the clone."))
        changed = error.code == REWARD_CHANGED
        pressed = changed and st.button("Retry with the changed reward", icon=":material/refresh:")
        if pressed and carried_out(partial(client().retry_with_changed_rewards, run.id)):
            draw_again()
        if error.details:
            with st.expander("Traceback"):
                show_text(error.details)
