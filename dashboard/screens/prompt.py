"""One prompt through time: every draw of it, two of them compared, and the same prompt in other runs."""

from collections.abc import Sequence

import streamlit as st

from backend.contract.records import Run
from dashboard.components.address import PROMPTS, numbers, read_all, write
from dashboard.components.chart import heading, show
from dashboard.components.live import follow
from dashboard.components.synced import on_choice, sync
from dashboard.format import MISSING, count, counted
from dashboard.group.cards import STYLE
from dashboard.group.rows import pick_group
from dashboard.leaving import go
from dashboard.prompts.draws import Draws, course, draw_across, fetch_draws, highest, ids_by_run
from dashboard.prompts.pair import LATER, choose_draw, draw_compared
from dashboard.session import client, guard, lead_back, link, run_or_none
from dashboard.text import one_line, show_text

MOST_RUNS = 20
COLUMNS = ("star", "step", "state", "rewards", "mean", "std", "best", "worst")


def main() -> None:
    """The prompt, its course, its draws, two of them compared, and the runs beside each other."""
    prompt_ids, run_ids = read_all("prompt"), numbers("runs", MOST_RUNS)
    if not any(prompt_ids) or not run_ids:
        lead_back("This address does not name a prompt. Open one from a run's prompts.")
    with guard():
        runs = [run for run_id in run_ids if (run := run_or_none(run_id)) is not None]
    fetched = fetch_draws(prompt_ids, [run.id for run in runs])
    draws = fetched.items
    if not draws:
        lead_back("None of these runs has drawn this prompt, or the groups were not kept.")
    st.html(STYLE)
    follow(runs)
    with st.container(horizontal=True, vertical_alignment="center", key="path"):
        for run in runs:
            link("run", f"Run #{run.id}", id=run.id, tab=PROMPTS.lower())
        st.markdown("**Prompt history**", width="stretch")
    prompt, answer = st.columns([3, 1])
    with prompt:
        st.caption("Prompt")
        show_text(draws[0].prompt or draws[0].prompt_text)
    with answer:
        st.caption("Reference answer")
        show_text(MISSING if draws[0].answer is None else draws[0].answer)
    _choose_runs(prompt_ids, draws[0].prompt or draws[0].prompt_text, runs)
    _draw_history(fetched, runs)
    st.subheader("Two draws compared", anchor=False)
    draw_compared(draws)
    if len(runs) > 1:
        st.subheader("Runs side by side", anchor=False)
        draw_across(fetched, runs)


def _choose_runs(prompt_ids: Sequence[str], text: str, runs: Sequence[Run]) -> None:
    """The runs that are shown, out of those that have drawn the prompt; in the address."""
    with guard():
        newest = [run for run in client().runs(kind="training", limit=MOST_RUNS).items if run.by_groups]
    shown = {run.id: run for run in runs}
    known = {run.id: run for run in newest} | shown
    ids = ids_by_run(tuple(prompt_ids), text.strip(), tuple(sorted(known)))
    offered = shown | {run_id: run for run_id, run in known.items() if run_id in ids}

    def keep(chosen: list[int]) -> None:
        if chosen:  # a history of no run is none
            names = dict.fromkeys(ids[run_id] for run_id in chosen if run_id in ids)
            write(runs=",".join(map(str, chosen)), prompt=list(names) or list(prompt_ids))

    sync("of-runs", list(shown))
    st.multiselect(
        "Runs",
        list(offered),
        key="of-runs",
        format_func=lambda run_id: f"#{run_id} {one_line(offered[run_id].name)}",
        max_selections=MOST_RUNS,
        help="You can add any of the newest runs that have drawn this prompt.",
        on_change=on_choice("of-runs", keep),
    )


def _draw_history(fetched: Draws, runs: Sequence[Run]) -> None:
    """The course of the mean reward over the draws, and each draw in a table."""
    draws = fetched.items

    def compare(draw_id: int) -> None:
        if any(draw.id == draw_id for draw in draws):  # a resume may have taken it back since the chart was drawn
            choose_draw(LATER, draw_id)

    figures, table = st.columns([2, 3], gap="medium")
    with figures, st.container(border=True, key="course"):
        st.markdown(heading("Mean reward at each draw"), help="Click a point to compare that draw below.")
        show(course(draws, runs), key="course-chart", about="Mean reward at each draw of the prompt", on_pick=compare)
    with table:
        of_each = f" {count(fetched.share)} of each run" if len(runs) > 1 else ""
        kept = f", the newest{of_each}: older ones are not shown" if fetched.cut else ""
        st.markdown(f"**{counted(len(draws), 'draw')}**{kept} :gray[:small[· click a line to open its group]]")
        columns = ("run", *COLUMNS) if len(runs) > 1 else COLUMNS
        group = pick_group(draws, highest(runs), columns, key="draws")
    if group is not None:
        go("group", id=group.id)


main()
