"""A whole number that a person types."""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator


def whole_number(
    label: str, low: int, high: int, value: int, *, place: DeltaGenerator, key: str, help: str | None = None
) -> int:
    """The number, which stands in the address, too. One out of range is said to be, and the page ends there.

    Streamlit's own bounds would keep the last good number, and go on with another one than the field shows.
    """
    typed = place.number_input(label, value=value, step=1, key=key, bind="query-params", help=help)
    if not low <= typed <= high:
        place.error(f"{low:,} to {high:,}, not {typed:,}")
        st.stop()
    return typed
