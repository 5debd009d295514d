"""Only the fields in which configurations differ, one column for each."""

from collections.abc import Mapping

import pandas as pd
import streamlit as st

from backend.contract.base import Json
from dashboard.comparison.flat import differences
from dashboard.comparison.settings import cell

ROWS = 12  # a longer table scrolls


def show_differences(configs: Mapping[str, Mapping[str, Json]]) -> None:
    """The table; `configs` are named as its columns will be."""
    st.subheader("What they differ in")
    if len(configs) < 2:
        st.caption("Choose a second run to see the fields in which they differ.")
        return
    rows = differences(dict(enumerate(configs.values())))
    if not rows:
        st.caption("Nothing: their configurations are the same.")
        return
    table = pd.DataFrame(
        [
            {"field": path, **{name: cell(row[place]) for place, name in enumerate(configs)}}
            for path, row in rows.items()
        ]
    )
    st.dataframe(table, hide_index=True, key="differences", height="content" if len(table) <= ROWS else 460)
