"""The menu of a run's downloads: a report for others, tables for a notebook, the configuration for another run."""

from html import escape
from pathlib import Path

import streamlit as st

from backend.contract.config import LOOKS
from backend.contract.records import Run
from dashboard.downloads.routes import What, address

_STYLE = Path(__file__).with_name("menu.css")
_GROUPS = {"bookmarked": "bookmarked", "examples": "examples"}
_OF_GROUPS = ("groups", "tokens")
_FILES: tuple[tuple[What, str, str, str], ...] = (
    ("report", "Report", "HTML", "Charts, health, groups and configuration; opens without a server."),
    ("groups", "Groups", "Parquet", "A row for each completion, with its group."),
    ("tokens", "Tokens", "Parquet", "The same rows with the values of each token; a larger file."),
    ("metrics", "Metrics", "Parquet", "A row for each value of each metric."),
    ("lines", "Everything", "JSON lines", "The run, its metrics and its groups, one object per line."),
    ("configuration", "Configuration", "YAML", "For the form, and for <code>groupscope submit</code>."),
    ("trl", "TRL script", "Python", "Trains the same under TRL 1.16, and is recorded here."),
)


def draw_downloads(run: Run) -> None:
    """Draw links to the files, each of which is made when somebody asks for it."""
    with_groups = run.by_groups or run.kind in LOOKS
    made_here = run.by_groups and not run.recorded
    with st.popover("Downloads", icon=":material/download:"):
        asked: dict[str, str] = {}
        if with_groups:
            chosen = st.pills(
                "Groups in the report",
                list(_GROUPS),
                default=list(_GROUPS),
                selection_mode="multi",
                format_func=lambda name: _GROUPS[name],
                key="report-groups",
                help="Examples are the groups with the widest spread and with the highest and the lowest mean, from the first and from the "
                "newest step that has live groups. The newest dead and the newest unscored group are added.",
            )
            asked = {"groups": ",".join(chosen) or "none"}
        rows = []
        for what, name, form, about in _FILES:
            if (with_groups or what not in _OF_GROUPS) and (made_here or what != "trl"):
                link = escape(address(run.id, what, **(asked if what == "report" else {})))
                rows.append(f'<a href="{link}" download><b>{name}</b><i>{form}</i><span>{about}</span></a>')
        st.html(f'<style>{_STYLE.read_text(encoding="utf-8")}</style><div class="downloads">{"".join(rows)}</div>')
        st.caption(f"From a shell: `groupscope export {run.id}`")
