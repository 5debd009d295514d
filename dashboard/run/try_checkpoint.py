"""Try a checkpoint: a person types a prompt and gets a group of completions, scored as the run scores where there is an answer."""

import streamlit as st

from backend.contract.base import Json
from backend.contract.client import ApiError, Unreachable
from backend.contract.records import TERMINAL, Checkpoint, Run
from backend.contract.sample import SampleConfig
from dashboard.components.model_text import show_text
from dashboard.components.stored import as_policy_run, number_at, text_at
from dashboard.form.paths import get
from dashboard.group.completion_card import draw_cards
from dashboard.session import client, explain, guard
from dashboard.status import look

SAMPLE = "sample"  # in the address: the sample whose completions are shown


def draw_try(run: Run, checkpoint: Checkpoint) -> None:
    """The form, and the completions of the last sample that was asked for."""
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
            decoding = {**_decoding(run), "temperature": float(temperature), "max_new_tokens": int(tokens)}
            _ask(_sample_config(run, checkpoint, prompt, answer, int(size), decoding))
    sample_id = st.query_params.get(SAMPLE, "")
    if sample_id.isdecimal():
        _follow(int(sample_id))


def _sample_config(
    run: Run, checkpoint: Checkpoint, prompt: str, answer: str, group_size: int, decoding: dict[str, Json]
) -> dict[str, Json]:
    """A run of kind `sample`: the checkpoint, asked as the run asked, scored as the run scored."""
    given, asked = answer.strip(), as_policy_run(run.config)
    return {
        "kind": "sample",
        "model": {"source": f"run:{run.id}@{checkpoint.step}", "dtype": text_at(run.config, "model.dtype", "auto")},
        "prompts": [prompt],
        "answer": given or None,
        "system_prompt": get(asked, "task.system_prompt"),
        "prompt_format": text_at(asked, "task.prompt_format", "chat"),
        "group_size": group_size,
        "decoding": decoding,
        "rewards": get(asked, "rewards") if given else None,
    }


def _decoding(run: Run) -> dict[str, Json]:
    """How the run samples, as far as a sample can be drawn in the same way."""
    sampling = get(as_policy_run(run.config), "sampling")
    known = SampleConfig.model_fields["decoding"].annotation
    names = getattr(known, "model_fields", {})
    return {name: value for name, value in sampling.items() if name in names} if isinstance(sampling, dict) else {}


def _ask(config: dict[str, Json]) -> None:
    try:
        sample = client().create_run(config, name="try", priority=100)
    except ApiError as refusal:
        st.error(explain(refusal), icon=":material/error:")
        return
    except Unreachable:
        st.error(
            "The backend does not answer; nothing was asked. Try again when it is back.", icon=":material/cloud_off:"
        )
        return
    st.query_params[SAMPLE] = str(sample.id)


def _follow(sample_id: int) -> None:
    with guard():
        sample = client().run(sample_id)
    if sample.status in TERMINAL:
        _draw_sample(sample)
    else:
        st.fragment(_wait, run_every=1)(sample_id)


def _wait(sample_id: int) -> None:
    """Say what it waits for; the page is drawn again when it is over."""
    with guard():
        sample = client().run(sample_id)
    if sample.status in TERMINAL:
        st.rerun()
    st.info(
        f"{look(sample).markdown}: a worker that trains serves samples between two steps, an idle one at once.",
        icon=":material/hourglass_top:",
    )


def _draw_sample(sample: Run) -> None:
    """The completions, or why there are none."""
    with guard():
        if sample.status != "finished":
            st.error("No completions came of this.", icon=":material/error:")
            show_text(sample.error.message if sample.error else "It was stopped.")
            return
        groups = client().groups(sample.id, limit=16).items
        for summary in groups:
            draw_cards(client().group(summary.id), sample.config, by_advantage=False, visible=False)


@st.cache_data(ttl=600, max_entries=64, show_spinner=False)
def _some_prompt(run_id: int) -> str:
    """One of the run's own prompts, to begin with."""
    with guard():
        groups = client().groups(run_id, limit=1).items
    return groups[0].prompt if groups else ""
