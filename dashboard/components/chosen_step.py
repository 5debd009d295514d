"""Which step a person looks at. The address holds it; without one, the page follows the newest step."""

import streamlit as st

_OPEN = "open-groups"
TAB = "tab"
GROUPS = "Groups"


def chosen() -> int | None:
    """The step in the address; None follows the newest."""
    step = st.query_params.get("step", "")
    return int(step) if step.isascii() and step.isdigit() and len(step) < 10 else None


def choose(step: int | None, *, then_open: bool = False) -> None:
    """Keep to this step, or follow the newest; `then_open` shows its groups."""
    if step is None:
        st.query_params.pop("step", None)
    else:
        st.query_params["step"] = str(step)
    if then_open:
        st.session_state[TAB] = GROUPS
        st.session_state[_OPEN] = True


def leave_for_groups() -> None:
    """Draw the whole page again if a click inside a part of it asked for the groups."""
    if st.session_state.pop(_OPEN, False):
        st.rerun()
