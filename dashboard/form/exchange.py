"""The draft as YAML: to read, to keep, to send to somebody, and to bring back."""

from collections.abc import Mapping

import streamlit as st
from pydantic import ValidationError

from backend.contract.base import Json
from backend.contract.config import RUN_CONFIG
from backend.contract.yaml_text import Unreadable, read
from dashboard.form.draft import Draft
from dashboard.form.schema import FIELDS
from dashboard.form.written import dump
from dashboard.format import plain


def to_yaml(config: Mapping[str, Json]) -> str:
    """The configuration as `groupscope submit` reads it."""
    return dump(dict(config))


def from_yaml(text: str) -> dict[str, Json]:
    """The configuration in the text. Raises Unreadable.

    A valid one gets the defaults of the model itself, as a submitted file would; of any other, the form shows what is wrong.
    """
    try:
        config = read(text)
    except Unreadable as error:
        raise Unreadable(f"This YAML cannot be read: {error}.") from error
    if not isinstance(config, dict) or not config:
        raise Unreadable("A configuration is a mapping such as `sampling: {group_size: 8}`.")
    kind = str(config.setdefault("kind", "grpo"))
    if kind not in FIELDS:
        raise Unreadable(f"This form is for runs of the kinds {', '.join(FIELDS)}, and the file's kind is {kind}.")
    try:
        return RUN_CONFIG.validate_python(config).model_dump(mode="json")
    except ValidationError:
        return config


@st.dialog("Configuration as YAML", width="large")
def show_yaml(draft: Draft) -> None:
    """Two tabs: the draft to take away, and a file or text to bring in."""
    away, bring = st.tabs(["Export", "Import"])
    with away:
        text = to_yaml(draft.config)
        st.download_button("Download", text, file_name=f"{draft.name or 'run'}.yaml", icon=":material/download:")
        st.code(text, language=None, height=420)
    with bring:
        file = st.file_uploader("YAML file", type=["yaml", "yml"])
        pasted = st.text_area("or paste it here", height=240)
        if st.button("Fill the form", type="primary", disabled=not (file or pasted.strip())):
            _bring(file.getvalue().decode(errors="replace") if file else pasted, draft)


def _bring(text: str, draft: Draft) -> None:
    try:
        draft.fill(from_yaml(text))
    except Unreadable as reason:
        st.error(plain(str(reason)), icon=":material/error:")
    else:
        draft.parent_id = None
        st.rerun()
