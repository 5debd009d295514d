"""A run's checkpoints: download one, start another run from it, or try it on a prompt."""

import pandas as pd
import streamlit as st

from backend.contract.home import store_path
from backend.contract.records import TERMINAL, Checkpoint, Run
from dashboard.components.model_text import show_text
from dashboard.downloads.routes import model_address
from dashboard.form.paths import get
from dashboard.form.written import show_number
from dashboard.format import absolute, ago, size
from dashboard.run.try_checkpoint import draw_try
from dashboard.session import client, guard, link


def draw_checkpoints(run: Run) -> None:
    """The checkpoints, newest at the bottom, and what can be done with the chosen one."""
    with guard():
        checkpoints = client().checkpoints(run.id)
    if run.status not in TERMINAL:
        st.fragment(_wait_for_others, run_every=3)(run.id, [one.step for one in checkpoints])
    if not checkpoints:
        st.info(
            "No checkpoint yet. One is saved at the interval that the configuration names, and at the end.",
            icon=":material/save:",
        )
        return
    table, actions = st.columns([3, 2], gap="large")
    with table:
        checkpoint = _choose(run, checkpoints)
        if rule := _rule(run):
            st.caption(rule)
    with actions:
        _draw_actions(run, checkpoint)
    if run.kind != "reward_model":  # it writes no completions
        st.divider()
        draw_try(run, checkpoint)


def _wait_for_others(run_id: int, shown: list[int]) -> None:
    """Draw the page again when a checkpoint is added or removed; nobody's typing is disturbed before."""
    with guard():
        if [one.step for one in client().checkpoints(run_id)] != shown:
            st.rerun()


def _rule(run: Run) -> str | None:
    """Which checkpoints stay, where not all do: those that were removed stand in no list."""
    last, bound = (get(run.config, f"budget.keep.{name}") for name in ("last", "at_most_gib"))
    every, best = (last and get(run.config, f"budget.keep.{name}") for name in ("every", "best"))
    parts = [
        f"the newest {show_number(last)}" if last else None,
        f"each step that {show_number(every)} divides" if every else None,
        "the best by its held-out result" if best else None,
        f"as many as {show_number(bound)} GiB hold" if bound else None,
        "those that other runs name",
    ]
    if not (last or bound):
        return None
    return f"This run keeps {', '.join(filter(None, parts))}. Others are removed when a newer one is saved; its log says which."


def _choose(run: Run, checkpoints: list[Checkpoint]) -> Checkpoint:
    event = st.dataframe(
        pd.DataFrame(
            {
                "step": [checkpoint.step for checkpoint in checkpoints],
                "size": [size(checkpoint.size_bytes) for checkpoint in checkpoints],
                "saved": [ago(checkpoint.created_at) for checkpoint in checkpoints],
                "at": [absolute(checkpoint.created_at) for checkpoint in checkpoints],
                "attempt": [checkpoint.attempt for checkpoint in checkpoints],
            }
        ),
        key=f"checkpoints-{run.id}",
        on_select="rerun",
        selection_mode="single-row-required",
        selection_default={"selection": {"rows": [len(checkpoints) - 1]}},
        hide_index=True,
        height="content" if len(checkpoints) <= 8 else 320,
    )
    rows = [row for row in event.selection.rows if row < len(checkpoints)]
    return checkpoints[rows[0] if rows else -1]


def _draw_actions(run: Run, checkpoint: Checkpoint) -> None:
    st.markdown(f"**Checkpoint {checkpoint.step}**", help=f"{checkpoint.step} steps are done in it.")
    with st.container(horizontal=True, vertical_alignment="center"):
        if run.kind == "reward_model":
            link_as_reward(run, checkpoint.step)
        else:
            link(
                "new-run",
                "Start a run from it",
                icon=":material/rocket_launch:",
                help="The form, filled in from this run, with this checkpoint as the model.",
                **{"from": f"{run.id}@{checkpoint.step}"},
            )
        _draw_download(run, checkpoint)
    path = "rewards.functions.0.source" if run.kind == "reward_model" else "model.source"
    use = "scores with it" if run.kind == "reward_model" else "starts from it"
    st.caption(f"`{path}: run:{run.id}@{checkpoint.step}` in a configuration {use}.")
    show_text(f"{store_path(checkpoint.store)}/{checkpoint.path}")
    st.caption(
        "Where it is on the worker's machine. A backend on another machine cannot read it, and the download says so: copy it by hand."
    )


def link_as_reward(run: Run, step: int) -> None:
    """The way to a run whose completions this run's model scores."""
    link(
        "new-run",
        "Use it as a reward",
        icon=":material/trophy:",
        help="The form for a run that this model rewards, on the task that its pairs came from.",
        reward=f"{run.id}@{step}",
    )


def _draw_download(run: Run, checkpoint: Checkpoint) -> None:
    """A link to the zip, which no page holds. It opens beside this page, where a refusal is read; a file opens nothing."""
    st.link_button(
        "Download model",
        model_address(run.id, checkpoint.step),
        icon=":material/download:",
        help="A zip of the directory that transformers' `from_pretrained` opens, or of a PEFT adapter.",
    )
