"""A run's checkpoints: download one, start another run from it, or try it on a prompt."""

import pandas as pd
import streamlit as st

from backend.contract.base import Json
from backend.contract.home import store_address
from backend.contract.records import TERMINAL, Checkpoint, Run
from backend.contract.training import Decoding
from dashboard.components.address import number_in_address, write
from dashboard.components.live import draw_again
from dashboard.downloads.routes import model_address
from dashboard.format import absolute, ago, count, plain, size
from dashboard.group.cards import draw_cards
from dashboard.session import client, guard, in_the_way, link, queued, zone
from dashboard.status import look
from dashboard.stored import as_policy_run, get, number_at, text_at
from dashboard.text import show_text
from dashboard.wording import show_number

FORKS = 12  # that the menu offers
SAMPLE = "sample"  # in the address: the sample whose completions are shown


def draw_checkpoints(run: Run) -> None:
    """Draw the checkpoints, newest at the bottom, and the actions for the chosen one."""
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
    if run.kind != "reward_model":  # it does not write completions
        st.divider()
        draw_try(run, checkpoint)


def _wait_for_others(run_id: int, shown: list[int]) -> None:
    """Draw the page again when a checkpoint is added or removed, and not before, as somebody may be typing."""
    with guard():
        if [one.step for one in client().checkpoints(run_id)] != shown:
            draw_again()


def _rule(run: Run) -> str | None:
    """Which checkpoints are kept; None if all are. Removed ones appear in no list."""
    last, bound = (get(run.config, f"budget.keep.{name}") for name in ("last", "at_most_gib"))
    every, best = (last and get(run.config, f"budget.keep.{name}") for name in ("every", "best"))
    parts = [
        f"the newest {show_number(last)}" if last else None,
        f"those at multiples of {show_number(every)} steps" if every else None,
        "the best by its held-out result" if best else None,
        f"as many as {show_number(bound)} GiB hold" if bound else None,
        "those that other runs use",
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
                "time": [absolute(checkpoint.created_at, zone()) for checkpoint in checkpoints],
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
            if run.kind == "grpo":
                link_fork(run, checkpoint.step, "Fork here")
            link(
                "new-run",
                "Start a run from it",
                icon=":material/rocket_launch:",
                help="The form, filled in from this run, with this checkpoint as the model.",
                **{"from": f"{run.id}@{checkpoint.step}"},
            )
        # The zip is not held in memory. A refusal opens as a page of its own; a file opens nothing.
        st.link_button(
            "Download model",
            model_address(run.id, checkpoint.step),
            icon=":material/download:",
            help="A zip of the directory that transformers' `from_pretrained` opens, or of a PEFT adapter.",
        )
    path = "rewards.functions.0.source" if run.kind == "reward_model" else "model.source"
    use = "scores with it" if run.kind == "reward_model" else "starts from it"
    st.caption(f"A configuration with `{path}: run:{run.id}@{checkpoint.step}` {use}.")
    show_text(f"{store_address(checkpoint.store)}/{checkpoint.path}")
    st.caption(
        "It lies in a bucket. A backend whose settings do not name the bucket refuses the download."
        if checkpoint.store.startswith("s3://")
        else "This path is on the worker's machine. If the backend runs on another machine, it refuses the download: copy the folder by hand."
    )


def link_fork(run: Run, step: int, label: str) -> None:
    """A link to the form of a run that goes on from where this run was after a step."""
    link(
        "new-run",
        label,
        icon=":material/fork_right:",
        help="The form, filled in from this run, for one that goes on from there with its optimizer and draws.",
        fork=f"{run.id}@{step}",
    )


def draw_fork_menu(run: Run) -> None:
    """A menu of the steps at which the run can be forked: those of its newest checkpoints, and any other."""
    with st.popover(
        "Fork here", icon=":material/fork_right:", help="Go on from one of its steps with something changed"
    ):
        with guard():
            checkpoints = client().checkpoints(run.id)
        if not checkpoints:
            st.caption("A run is forked up to its newest checkpoint, and this one has none yet.")
            return
        for checkpoint in checkpoints[: -FORKS - 1 : -1]:
            link_fork(run, checkpoint.step, f"After step {count(checkpoint.step)}")
        step = st.number_input(
            "After another step", 1, checkpoints[-1].step, value=None, placeholder=f"1 to {checkpoints[-1].step}",
            help="Between two checkpoints its worker first does the steps from the one before again, exactly\\.",
        )  # fmt: skip
        if step is not None:
            link_fork(run, step, f"Fork after step {count(step)}")


def link_as_reward(run: Run, step: int) -> None:
    """A link to the form of a run whose completions this run's model scores."""
    link(
        "new-run",
        "Use it as a reward",
        icon=":material/trophy:",
        help="The form for a run that this model rewards, on the task that its pairs came from.",
        reward=f"{run.id}@{step}",
    )


def draw_try(run: Run, checkpoint: Checkpoint) -> None:
    """Draw the form, and the completions of the latest sample."""
    st.markdown(
        f"**Try checkpoint {checkpoint.step}**",
        help="Samples a group from it, as training does, without training on it.",
    )
    asked = as_policy_run(run.config)
    with st.form("try", border=False):
        prompt = st.text_area("Prompt", _some_prompt(run.id), height=90, max_chars=20_000, key="try-prompt")
        answer_column, size_column, temperature_column, tokens_column = st.columns([3, 1, 1, 1])
        answer = answer_column.text_input(
            "Reference answer",
            help="With an answer, the run's own rewards score the completions; without one they are shown as they are.",
        )
        size = size_column.number_input("Completions", 1, 64, int(number_at(asked, "sampling.group_size", 8)))
        temperature = temperature_column.number_input(
            "Temperature", 0.01, 10.0, number_at(asked, "sampling.temperature", 1.0), step=0.1
        )
        tokens = tokens_column.number_input(
            "Max new tokens", 1, 32_768, int(number_at(asked, "sampling.max_new_tokens", 48))
        )
        if st.form_submit_button("Sample", icon=":material/casino:", type="primary"):
            config = _sample_config(run, checkpoint, prompt, answer, int(size), float(temperature), int(tokens))
            away = "The backend does not answer; the sample was not started. Try again when it is back."
            sample = queued(lambda: client().create_run(config, name="try", priority=100), away, ":material/cloud_off:")
            if sample is not None:
                write(**{SAMPLE: sample.id})
    sample_id = number_in_address(SAMPLE)
    if sample_id is None:
        return
    with guard():
        sample = client().run(sample_id)
    if sample.status in TERMINAL:
        _draw_sample(sample)
    else:
        st.fragment(_wait, run_every=1)(sample_id)


def _sample_config(
    run: Run, checkpoint: Checkpoint, prompt: str, answer: str, group_size: int, temperature: float, tokens: int
) -> dict[str, Json]:
    """A run of kind `sample` from the checkpoint, prompted, sampled and scored as in the run."""
    given, asked = answer.strip(), as_policy_run(run.config)
    sampling = get(asked, "sampling")
    known = sampling if isinstance(sampling, dict) else {}
    decoding = {name: known[name] for name in Decoding.model_fields if name in known}
    return {
        "kind": "sample",
        "model": {"source": f"run:{run.id}@{checkpoint.step}", "dtype": text_at(run.config, "model.dtype", "auto")},
        "prompts": [prompt],
        "answer": given or None,
        "system_prompt": get(asked, "task.system_prompt"),
        "prompt_format": text_at(asked, "task.prompt_format", "chat"),
        "group_size": group_size,
        "decoding": {**decoding, "temperature": temperature, "max_new_tokens": tokens},
        "rewards": get(asked, "rewards") if given else None,
    }


def _wait(sample_id: int) -> None:
    """Say what the sample waits for; the page is drawn again when it has ended."""
    with guard():
        sample = client().run(sample_id)
    if sample.status in TERMINAL:
        draw_again()
    reasons = in_the_way(sample.id) if sample.status == "queued" else []
    waits = plain("; ".join(reasons)) or "an idle worker starts at once; one that is training starts between two steps."
    st.info(f"{look(sample).markdown}: {waits}", icon=":material/hourglass_top:")


def _draw_sample(sample: Run) -> None:
    """Draw the completions, or why there are none."""
    with guard():
        if sample.status != "finished":
            st.error("This sample has no completions.", icon=":material/error:")
            show_text(sample.error.message if sample.error else "It was stopped.")
            return
        for summary in client().groups(sample.id, limit=16).items:
            draw_cards(client().group(summary.id), sample.config, by_advantage=False, visible=False)


@st.cache_data(ttl=600, max_entries=64, show_spinner=False)
def _some_prompt(run_id: int) -> str:
    """One of the run's own prompts, to begin with."""
    with guard():
        groups = client().groups(run_id, limit=1).items
    return groups[0].prompt if groups else ""
