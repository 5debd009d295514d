"""All prompts of a run: how often each was drawn, and whether it is being learned."""

import base64
from collections.abc import Sequence

import pandas as pd
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from backend.contract.inspection import PromptSummary
from backend.contract.records import Page, Run
from dashboard.components.clicked import pick_row
from dashboard.components.keys import listen
from dashboard.components.model_text import one_line
from dashboard.components.pager import ROWS, cursor, first_page, show_pager
from dashboard.format import MISSING, counted, number, signed
from dashboard.leaving import go
from dashboard.listing.sparkline import sparkline
from dashboard.session import client, guard

COLUMNS = ("probe", "prompt", "draws", "steps", "first", "latest", "change", "course")
PAGES = "prompts"  # the name of the pages in the address
ORDERS = {
    "drawn most often first": "-draws",
    "most improved first": "-reward_change",
    "got worse most first": "reward_change",
    "drawn last first": "-last_step",
    "in order of appearance": "first_step",
}


def draw_prompts(run: Run) -> None:
    """Search and order, and a page of prompts, probes first; a click on a row opens the prompt's history."""
    listen({"/": "words"})
    page = _fetch(run)
    if not page.items:
        _draw_nothing(run)
        return
    prompts = sorted(page.items, key=lambda prompt: not prompt.probes)
    probes = sum(bool(prompt.probes) for prompt in prompts)
    about = f" · {probes} of them probes: sampled again every few steps, never trained on" if probes else ""
    more = "" if page.next_cursor is None and cursor(PAGES) is None else " on this page"
    st.markdown(f"**{counted(len(prompts), 'prompt')}**{more}{about} :gray[:small[· click a line to open its history]]")
    prompt = _pick(run, prompts)
    if prompt is not None:
        go("prompt", prompt=prompt.prompt_id, runs=run.id)
    show_pager(PAGES, page.next_cursor)


def _fetch(run: Run) -> Page[PromptSummary]:
    words, order = st.columns([3, 1], vertical_alignment="bottom")
    said = words.text_input(
        "Search in prompts",
        key="words",
        type="search",
        live="300ms",
        bind="query-params",
        placeholder="words in prompts",
        help="Key /",
        icon=":material/search:",
        on_change=first_page,
        args=(PAGES,),
    )
    sort = order.selectbox(
        "Order", list(ORDERS), key="prompt_order", bind="query-params", on_change=first_page, args=(PAGES,)
    )
    with guard():
        return client().prompts(
            run.id, search=said.strip() or None, sort=ORDERS[sort], limit=ROWS, cursor=cursor(PAGES)
        )


def _draw_nothing(run: Run) -> None:
    if st.session_state.get("words"):
        st.info("No prompt has these words.", icon=":material/search_off:")
    elif not run.progress.step:
        st.info(
            "No prompts yet. Each one that is drawn appears here, with its rewards from draw to draw.",
            icon=":material/hourglass_empty:",
        )
    else:
        st.info("This run kept no groups, so that nothing is known of its prompts.", icon=":material/hourglass_empty:")


def _pick(run: Run, prompts: Sequence[PromptSummary]) -> PromptSummary | None:
    columns: dict[str, ColumnConfig] = {
        "probe": st.column_config.TextColumn("", width=60, help="A fixed prompt that is sampled every few steps."),
        "prompt": st.column_config.TextColumn("prompt", width="large"),
        "draws": st.column_config.NumberColumn("draws", width=60, help="How often it was drawn."),
        "steps": st.column_config.TextColumn("steps", width=90, help="First … latest step at which it was drawn."),
        "first": st.column_config.TextColumn("first reward", width=90, alignment="right"),
        "latest": st.column_config.TextColumn("latest reward", width=90, alignment="right"),
        "change": st.column_config.TextColumn("change", width=75, alignment="right"),
        "course": st.column_config.ImageColumn(
            "from draw to draw",
            width=130,
            help="Mean reward of each draw; all rows from the lowest of the page to its highest.",
        ),
    }
    shown = None if any(prompt.probes for prompt in prompts) else COLUMNS[1:]
    return pick_row(prompts, _table(prompts), columns, shown=shown, key=f"prompts-{run.id}")


def _table(prompts: Sequence[PromptSummary]) -> pd.DataFrame:
    known = [reward for prompt in prompts for reward in prompt.rewards if reward is not None]
    within = (min(known), max(known)) if known else None
    rows = [
        (
            "probe" if prompt.probes else "",
            one_line(prompt.prompt),
            prompt.draws,
            f"{prompt.first_step} … {prompt.last_step}" if prompt.draws > 1 else str(prompt.first_step),
            number(prompt.reward_first),
            number(prompt.reward_last),
            _change(prompt),
            _picture(prompt.rewards, within),
        )
        for prompt in prompts
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _change(prompt: PromptSummary) -> str:
    if prompt.draws < 2 or prompt.reward_first is None or prompt.reward_last is None:
        return MISSING
    return signed(prompt.reward_last - prompt.reward_first)


def _picture(rewards: Sequence[float | None], within: tuple[float, float] | None) -> str | None:
    """The course as a data address; None below two known rewards."""
    drawn = sparkline(rewards, within)
    return f"data:image/svg+xml;base64,{base64.b64encode(drawn.encode()).decode()}" if drawn else None
