"""Before launch: ask for a sample of the form's task, watch it, and read what came of it. The form waits unchanged."""

from functools import partial

import streamlit as st

from backend.contract.client import ApiError, Unreachable
from backend.contract.records import STOPS, TERMINAL, Run
from backend.contract.sample import MOST_PROMPTS
from dashboard.before_launch import request
from dashboard.before_launch.rescoring import watch_files
from dashboard.before_launch.results import draw_results
from dashboard.components.address import number_in_address, write
from dashboard.components.live import draw_again
from dashboard.form.draft import Draft, on_change
from dashboard.form.sections import fetch_workers
from dashboard.format import count, counted, plain
from dashboard.session import client, guard, in_the_way
from dashboard.status import look, phase_in_words
from dashboard.text import show_text

TICK = 0.5  # seconds between two looks at a sample under way


def draw_before_launch(draft: Draft) -> None:
    """What to sample, and the sample."""
    named = number_in_address(request.SAMPLE)
    if named is not None and named != draft.sample_id:  # the sample in the address is the form's
        draft.sample_id, draft.sample_before, draft.sample_bar, draft.sample_files = named, None, None, None
        draft.sample_kept = None
    elif named is None and draft.sample_id is not None:
        write(**{request.SAMPLE: draft.sample_id})
    st.caption(
        "For each of a few prompts a worker samples one group from the form's model, with the form's decoding, and scores it with the "
        "form's rewards. The prompts are the first that training would draw. Nothing is trained."
    )
    _draw_controls(draft)
    if draft.sample_refused is not None:
        st.error(draft.sample_refused, icon=":material/error:")
    if draft.sample_id is None:
        st.info(
            "Here the groups will appear: every completion with its rewards and its advantage, which groups are dead and why, the "
            "success rate, and how many groups will be dead at other group sizes.",
            icon=":material/science:",
        )
        return
    with guard():
        sample = client().run(draft.sample_id)
    if sample.status not in TERMINAL:
        st.fragment(_watch, run_every=TICK)(sample.id)
    elif sample.status == "finished":
        draw_results(draft, sample)
    elif sample.status == "stopped" or sample.error is None:
        st.info("This sample was cancelled. The form is as it was.", icon=":material/stop_circle:")
    else:
        with st.container(border=True, key="before-launch-failure"):
            st.markdown(
                ":red[:material/cancel: **The sample failed**] and a run of this form would fail in the same way:"
            )
            show_text(sample.error.message)
            if sample.error.details:
                with st.expander("Traceback"):
                    show_text(sample.error.details)
        watch_files(draft, sample)


def _draw_controls(draft: Draft) -> None:
    prompts_key, completions_key = draft.key("before-launch.prompts"), draft.key("before-launch.completions")

    def measure() -> None:
        draft.sample_prompts = st.session_state[prompts_key] = request.MEASURED
        request.ask(draft)

    st.session_state.setdefault(prompts_key, draft.sample_prompts)
    completions = request.completions_of(draft)
    take_prompts = on_change(prompts_key, draft.sample_prompts, partial(setattr, draft, "sample_prompts"))
    take_completions = on_change(completions_key, completions, partial(setattr, draft, "sample_completions"))
    with st.container(horizontal=True, vertical_alignment="bottom", key="before-launch-controls"):
        st.number_input("Prompts", 1, MOST_PROMPTS, key=prompts_key, on_change=take_prompts, width=140)
        st.number_input(
            "Completions per prompt",
            2,
            request.MOST,
            completions,
            key=completions_key,
            on_change=take_completions,
            width=180,
            help=f"With {request.ENOUGH} or more, dead groups are forecast for G = 2 to {request.ENOUGH}. To forecast a larger G, sample at least G completions.",
        )
        st.button(
            "Sample again" if draft.sample_id is not None else "Sample",
            icon=":material/casino:",
            type="primary",
            key="before-launch-sample",
            on_click=request.ask,
            args=(draft,),
        )
        st.button(
            "Measure the data set",
            icon=":material/bar_chart:",
            key="before-launch-measure",
            on_click=measure,
            help=f"Samples {request.MEASURED} prompts, or all if there are fewer, and shows how they spread over success rates: what the "
            "model always, never and sometimes gets right\\. Set another number of prompts and press Sample for more of them\\.",
        )


def _watch(sample_id: int) -> None:
    """How far it is; the page is drawn anew when it is over. A backend that restarts is waited for."""
    try:
        sample = client().run(sample_id)
    except (Unreachable, ApiError):
        st.warning("The backend does not answer. The sample goes on, and so does this page once it is back.")
        return
    if sample.status in TERMINAL:
        draw_again()
    with st.container(border=True, key="before-launch-progress"):
        share, words = _how_far(sample)
        st.progress(share, f"{look(sample).markdown}  {words}")
        st.button(
            "Cancel", icon=":material/close:", key="before-launch-cancel", on_click=request.cancel, args=(sample_id,)
        )


def _how_far(sample: Run) -> tuple[float, str]:
    progress = sample.progress
    if sample.status == "queued":
        if not fetch_workers():
            return 0.0, "no worker is connected; start one with `groupscope worker`, and it starts at once"
        if reasons := in_the_way(sample.id):
            return 0.0, plain("; ".join(reasons))
        return 0.0, "an idle worker starts at once; one that is training starts between two steps"
    if sample.requested in STOPS:
        return 0.0, "it ends within a moment"
    phase = progress.phase or "starting"
    if progress.done is None or not progress.total:
        return 0.0, phase_in_words(phase)
    parts = max(1, progress.total_steps)
    done = f"{count(progress.done)} of {counted(progress.total, 'completion')}"
    which = f", part {progress.step + 1} of {parts}" if parts > 1 else ""
    return min(1.0, (progress.step + progress.done / progress.total) / parts), f"{phase_in_words(phase)} {done}{which}"
