"""What a person takes away from a run: a report for others, tables for a notebook."""

import streamlit as st

from backend.contract.records import Run
from dashboard.report.gather import gather
from dashboard.report.page import report
from dashboard.session import client


def draw_take_away(run: Run) -> None:
    """Downloads, each made when it is asked for."""
    with st.popover("Take away", icon=":material/download:"):
        st.download_button(
            "Report (HTML)",
            lambda: report(gather(client(), run.id)),
            file_name=f"run-{run.id}.html",
            mime="text/html",
            key="take-report",
            icon=":material/article:",
            help="Charts, hints, configuration and the bookmarked groups, or the widest of the latest step, in one file that opens "
            "without a server.",
            on_click="ignore",
            width="stretch",
        )
        if run.kind == "grpo":
            st.download_button(
                "Groups (Parquet)",
                lambda: b"".join(client().export_table(run.id, "groups")),
                file_name=f"run-{run.id}-groups.parquet",
                key="take-groups",
                icon=":material/table:",
                help="A row for each completion, with its group.",
                on_click="ignore",
                width="stretch",
            )
        st.download_button(
            "Metrics (Parquet)",
            lambda: b"".join(client().export_table(run.id, "metrics")),
            file_name=f"run-{run.id}-metrics.parquet",
            key="take-metrics",
            icon=":material/monitoring:",
            help="A row for each value of each metric.",
            on_click="ignore",
            width="stretch",
        )
        st.download_button(
            "Everything (JSON lines)",
            lambda: b"".join(client().export(run.id)),
            file_name=f"run-{run.id}.jsonl",
            key="take-lines",
            icon=":material/data_object:",
            help="The run, its metrics and its groups, one object a line.",
            on_click="ignore",
            width="stretch",
        )
        st.caption(f"From a shell: `groupscope export {run.id}`")
