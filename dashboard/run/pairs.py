"""The preference pairs that a run was trained on: what was preferred to what, and by how much the model agreed."""

import streamlit as st

from backend.contract.pairs import RECORDED, PairRecord
from backend.contract.records import Run
from dashboard.components.listing import ROWS, cursor, show_pager
from dashboard.components.table import Column, pick
from dashboard.format import MISSING, count, counted, plain, signed
from dashboard.session import client, guard
from dashboard.stored import get, number_at, text_at
from dashboard.text import one_line, show_text

PAGES = "pairs"  # the name of the pages in the address
MARGINS = {
    "dpo": "β × (log-ratio of the chosen − log-ratio of the rejected), before the step's update",
    "reward_model": "reward of the chosen − reward of the rejected, before the step's update",
}


def draw_pairs(run: Run) -> None:
    """Where the pairs come from, a page of them, and the one that was clicked, whole."""
    st.markdown(_origin(run))
    with guard():
        page = client().pairs(run.id, limit=ROWS, cursor=cursor(PAGES))
    if not page.items:
        why = "No pairs yet. They appear after the first step."
        if run.progress.step:
            why = "This run kept none of its pairs."
        st.info(why, icon=":material/hourglass_empty:")
        return
    st.caption(
        f"The first {RECORDED} pairs of each step, the newest step first. A margin below 0: the model preferred the rejected "
        "completion. Click a line to read the pair."
    )
    above = st.container()  # the table fills the window, and what is read would be out of sight below it
    columns: dict[str, Column[PairRecord]] = {
        "step": Column("step", lambda pair: pair.step, 60, kind="number"),
        "prompt": Column("prompt", lambda pair: one_line(pair.prompt), "medium"),
        "chosen": Column("chosen", lambda pair: one_line(pair.chosen), "large"),
        "rejected": Column("rejected", lambda pair: one_line(pair.rejected), "large"),
        "margin": Column("margin", lambda pair: signed(pair.margin), 80, MARGINS[run.kind], "figure"),
    }
    chosen = pick(page.items, columns, key=f"pairs-{run.id}")
    show_pager(PAGES, page.next_cursor)
    if chosen is not None:
        with above:
            _draw(chosen)


def _draw(pair: PairRecord) -> None:
    with st.container(border=True, key="pair"):
        about = f"Step {count(pair.step)} · margin {signed(pair.margin) if pair.margin is not None else MISSING} · "
        st.caption(f"{about}{plain(pair.prompt_id)}")
        show_text(pair.prompt)
        for place, title, text in zip(
            st.columns(2),
            (":material/thumb_up: Chosen", ":material/thumb_down: Rejected"),
            (pair.chosen, pair.rejected),
            strict=True,
        ):
            with place:
                st.markdown(f"**{title}**")
                show_text(text)


def _origin(run: Run) -> str:
    """Where the pairs come from, in a sentence."""
    if text_at(run.config, "pairs.kind", "sampled") == "dataset":
        columns = (text_at(run.config, f"pairs.{name}_column", name) for name in ("prompt", "chosen", "rejected"))
        return f"**From {plain(text_at(run.config, 'pairs.source'))}**: the columns {plain(', '.join(columns))}."
    functions = get(run.config, "pairs.rewards.functions")
    names = [str(get(one, "name")) for one in functions] if isinstance(functions, list) else []
    size = int(number_at(run.config, "pairs.group_size", 0))
    return (
        f"**Sampled from the run's own model before its first step**: of each group of {counted(size, 'completion')} the best "
        f"against the worst, by {plain(', '.join(names))}."
    )
