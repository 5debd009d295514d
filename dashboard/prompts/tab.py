"""All prompts of a run: how often each was drawn, and whether it is being learned."""

from collections.abc import Sequence

import streamlit as st

from backend.contract.inspection import PromptSummary
from backend.contract.records import Run
from dashboard.charts.figure import picture_address
from dashboard.charts.sparkline import sparkline
from dashboard.components.keys import listen
from dashboard.components.listing import ROWS, cursor, nothing, order_field, show_pager, words_field
from dashboard.components.table import Column, pick
from dashboard.format import MISSING, counted, number, signed
from dashboard.leaving import go
from dashboard.session import client, guard
from dashboard.text import one_line

PAGES = "prompts"  # the name of the pages in the address
ORDERS = {
    "most draws first": "-draws",
    "most improved first": "-reward_change",
    "got worse most first": "reward_change",
    "drawn last first": "-last_step",
    "in order of appearance": "first_step",
}


def draw_prompts(run: Run) -> None:
    """Search and order, and a page of prompts; a click on a row opens the prompt's history."""
    listen({"/": "words"})
    words, order = st.columns([3, 1], vertical_alignment="bottom")
    with words:
        term = words_field("Search in prompts", "words", PAGES, placeholder="words in prompts")
    with order:
        sort = order_field("prompt_order", PAGES, ORDERS)
    with guard():
        page = client().prompts(run.id, search=term, sort=sort, limit=ROWS, cursor=cursor(PAGES))
    if not page.items and term:
        nothing("No prompt has these words.")
        return
    if not page.items:
        why = "This run kept no groups, so nothing is known of its prompts."
        if not run.progress.step:
            why = "No prompts yet. Each one that is drawn appears here, with its rewards from draw to draw."
        st.info(why, icon=":material/hourglass_empty:")
        return
    prompts = page.items
    probes = sum(bool(prompt.probes) for prompt in prompts)
    about = f" · {probes} of them probes: sampled again every few steps, never trained on" if probes else ""
    more = "" if page.next_cursor is None and cursor(PAGES) is None else " on this page"
    st.markdown(f"**{counted(len(prompts), 'prompt')}**{more}{about} :gray[:small[· click a line to open its history]]")
    prompt = pick(prompts, _columns(prompts), key=f"prompts-{run.id}")
    if prompt is not None:
        go("prompt", prompt=prompt.prompt_id, runs=run.id)
    show_pager(PAGES, page.next_cursor)


def _columns(prompts: Sequence[PromptSummary]) -> dict[str, Column[PromptSummary]]:
    """A column for probes only if there are some; all courses are drawn from the page's lowest reward to its highest."""
    known = [reward for prompt in prompts for reward in prompt.rewards if reward is not None]
    within = (min(known), max(known)) if known else None

    def picture(prompt: PromptSummary) -> str | None:
        line = sparkline(prompt.rewards, within)
        return picture_address(line) if line else None

    probe = "A fixed prompt that is sampled every few steps."
    columns: dict[str, Column[PromptSummary]] = {
        "probe": Column("", lambda prompt: "probe" if prompt.probes else "", 60, probe),
        "prompt": Column("prompt", lambda prompt: one_line(prompt.prompt), "large"),
        "draws": Column("draws", lambda prompt: prompt.draws, 60, "How often it was drawn.", "number"),
        "steps": Column(
            "steps",
            lambda one: f"{one.first_step} … {one.last_step}" if one.draws > 1 else str(one.first_step),
            90,
            "First … latest step at which it was drawn.",
        ),
        "first": Column("first reward", lambda prompt: number(prompt.reward_first), 90, kind="figure"),
        "latest": Column("latest reward", lambda prompt: number(prompt.reward_last), 90, kind="figure"),
        "change": Column("change", _change, 75, kind="figure"),
        "course": Column(
            "reward by draw",
            picture,
            130,
            "Mean reward of each draw; all rows from the lowest of the page to its highest.",
            "image",
        ),
    }
    if not any(prompt.probes for prompt in prompts):
        del columns["probe"]
    return columns


def _change(prompt: PromptSummary) -> str:
    if prompt.draws < 2 or prompt.reward_first is None or prompt.reward_last is None:
        return MISSING
    return signed(prompt.reward_last - prompt.reward_first)
