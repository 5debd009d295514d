"""Which runs are ticked. A tick outlives the ticks of the list, and a page of filters; it goes with its run."""

import streamlit as st

_PICK = "pick-"


def show_tick(run_id: int) -> None:
    """The box of a run."""
    st.checkbox(f"Select run {run_id}", key=f"{_PICK}{run_id}", label_visibility="collapsed", persist_state="page")


def picked() -> list[int]:
    """The runs whose box is ticked, oldest first."""
    keys = [str(key) for key, ticked in st.session_state.items() if str(key).startswith(_PICK) and ticked is True]
    return sorted(int(key.removeprefix(_PICK)) for key in keys)


def forget(run_id: int) -> None:
    """A deleted run is not compared."""
    st.session_state.pop(f"{_PICK}{run_id}", None)
