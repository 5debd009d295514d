"""The search of a run: what is asked, what was found, and the way to each group."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from backend.contract.inspection import CompletionHit
from backend.contract.records import Run
from dashboard.components.clicked import pick_row
from dashboard.components.keys import listen
from dashboard.components.model_text import one_line
from dashboard.components.pager import show_pager
from dashboard.format import counted, number, signed
from dashboard.group.rows import WORDS
from dashboard.leaving import go
from dashboard.search.asked import PAGES, clear, fetch
from dashboard.status import FINISHED


def draw_search(run: Run) -> None:
    """The fields, and a page of completions that fit; a click on a row opens the group with that completion."""
    listen({"/": "find"})
    page = fetch(run.id)
    if not page.items:
        _draw_nothing(run)
        return
    found = f"{counted(len(page.items), 'completion')}{', and more' if page.next_cursor else ''}"
    st.markdown(f"**{found}** :gray[:small[· click a line to open its group with that completion]]")
    hit = _pick(run, page.items)
    if hit is not None:
        go("group", id=hit.group_id, tokens=hit.index + 1)
    show_pager(PAGES, page.next_cursor)


def _draw_nothing(run: Run) -> None:
    if not run.progress.step:
        st.info("No completions yet. They can be searched after the first step.", icon=":material/hourglass_empty:")
        return
    st.info("No completion fits. Use fewer words, or widen the ranges.", icon=":material/search_off:")
    st.button("Show all completions", icon=":material/filter_alt_off:", on_click=clear)


def _pick(run: Run, hits: Sequence[CompletionHit]) -> CompletionHit | None:
    columns: dict[str, ColumnConfig] = {
        "step": st.column_config.NumberColumn("step", width=55),
        "where": st.column_config.TextColumn("group · completion", width=120),
        "state": st.column_config.TextColumn("state", width=70),
        "reward": st.column_config.TextColumn("reward", width=65, alignment="right"),
        "advantage": st.column_config.TextColumn("advantage", width=80, alignment="right"),
        "tokens": st.column_config.NumberColumn("tokens", width=65),
        "ended": st.column_config.TextColumn("ended", width=130),
        "prompt": st.column_config.TextColumn("prompt", width=200),
        "completion": st.column_config.TextColumn("completion", width="large"),
    }
    return pick_row(hits, _table(hits), columns, key=f"found-{run.id}")


def _table(hits: Sequence[CompletionHit]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "step": [hit.step for hit in hits],
            "where": [f"{hit.group_index + 1} · {hit.index + 1}" for hit in hits],
            "state": [WORDS[hit.state] for hit in hits],
            "reward": [number(hit.reward) for hit in hits],
            "advantage": [signed(hit.advantage) for hit in hits],
            "tokens": [hit.token_count for hit in hits],
            "ended": [FINISHED[hit.finish_reason] for hit in hits],
            "prompt": [one_line(hit.prompt) for hit in hits],
            "completion": [one_line(hit.excerpt) for hit in hits],
        }
    )
