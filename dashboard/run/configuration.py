"""The configuration that the run was stored with, never the form's."""

import streamlit as st

from backend.contract import yaml_text
from backend.contract.base import Json
from backend.contract.records import Run
from backend.contract.reward import file_of
from backend.contract.stored import rewards_in, text_at
from dashboard.format import count, plain
from dashboard.session import client, guard, link
from dashboard.stored import completions_per_step, number_at
from dashboard.wording import label_of

_STORED = "This configuration was stored when the run was created; it never changes."
_STORED_BY_ITSELF = (
    "As the program that trains the run said it when it began. **Theirs** is its own configuration; the other parts say what of it is known in "
    "the terms of this program, and null where nothing is."
)


def draw_configuration(run: Run) -> None:
    """The stored configuration in its parts, to read, to download and to start from."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(f"{_arithmetic(run)} {_STORED_BY_ITSELF if run.recorded else _STORED}", width="stretch")
        st.download_button(
            "YAML",
            yaml_text.write(run.config),
            file_name=f"run-{run.id}.yaml",
            mime="application/yaml",
            icon=":material/download:",
            help="The whole configuration; the form reads it, and so does `groupscope submit`.",
            on_click="ignore",
        )
        if run.from_form:
            link("new-run", "Clone with changes", icon=":material/content_copy:", clone=run.id)
    if run.model_commit is not None:
        source = str(run.config["model"]["source"]).partition("@")[0]  # type: ignore[index, call-overload]
        st.caption(
            f"The run began from the weights and the tokenizer of {plain(source)} at commit {plain(run.model_commit)}."
        )
    _draw_rewards(run)
    parts = {name: value for name, value in run.config.items() if isinstance(value, dict)}
    rest: dict[str, Json] = {name: value for name, value in run.config.items() if name not in parts}
    columns = st.columns(2)
    for place, (name, value) in enumerate([("run", rest), *parts.items()]):
        with columns[place % 2]:
            st.markdown(f"**{label_of(name)}**")
            # a highlighter colours null and false like errors
            st.code(yaml_text.write(value), language=None, wrap_lines=True)


def _draw_rewards(run: Run) -> None:
    """The texts of the person's own files that scored the run; of an earlier attempt those that were others."""
    if not any(file_of(text_at(one, "function")) for _, one in rewards_in(run.config)):
        return
    with guard():
        scored = client().rewards(run.id)
    st.markdown("**Reward files**")
    if not scored:
        st.caption("Their texts are kept from the moment when a worker has loaded them.")
    for place, one in enumerate(scored):
        attempts = _attempts(one.attempt, scored[place - 1].attempt - 1 if place else None) if len(scored) > 1 else ""
        for file in one.files:
            with st.expander(f"**{plain(file.name)}**{attempts} · SHA-256 {file.sha256[:12]}…"):
                st.code(file.text, language="python", line_numbers=True)


def _attempts(first: int, last: int | None) -> str:
    """Which attempts a text scored; without a last one, all from the first on."""
    if last is None:
        return f" · since attempt {first}"
    return f" · attempt {first}" if first == last else f" · attempts {first} to {last}"


def _arithmetic(run: Run) -> str:
    """Prompts, completions and steps multiplied out."""
    if not run.from_form:
        return ""
    if not run.by_groups:
        pairs, steps = (int(number_at(run.config, f"budget.{name}", 0)) for name in ("pairs_per_step", "steps"))
        return f"{count(pairs)} pairs × {count(steps)} steps = {count(pairs * steps)} pairs."
    each = int(completions_per_step(run.config))
    steps = int(number_at(run.config, "budget.steps", 0))
    return (
        f"{count(int(number_at(run.config, 'sampling.prompts_per_step', 0)))} prompts × "
        f"{count(int(number_at(run.config, 'sampling.group_size', 0)))} completions = {count(each)} completions a step · "
        f"{count(steps)} steps · {count(each * steps)} completions."
    )
