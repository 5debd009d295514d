"""Which run a run was forked from, and which were forked from it."""

from collections.abc import Iterator, Sequence

import streamlit as st

from backend.contract.records import Run
from dashboard.format import count
from dashboard.session import client, guard, link, run_or_none
from dashboard.text import one_line

MOST = 12  # runs that are shown


@st.cache_data(ttl=5, max_entries=64, show_spinner=False)
def _ancestors(run_id: int) -> list[Run]:
    """The runs from which it came, the first of them first."""
    found: list[Run] = []
    run = run_or_none(run_id)
    while run is not None and run.forked_at is not None and run.parent_id is not None:
        run = run_or_none(run.parent_id)
        if run is not None:
            found.insert(0, run)
    return found


@st.cache_data(ttl=5, max_entries=64, show_spinner=False)
def _forks(run_id: int) -> list[Run]:
    return client().runs(forked_from=run_id, limit=MOST + 1).items[::-1]


def draw_family(run: Run) -> None:
    """A tree of the run's ancestors, itself and its forks, each with the step at which it left its parent; nothing for a run without."""
    with guard():
        ancestors, forks = _ancestors(run.id), _forks(run.id)
    if not ancestors and not forks and run.forked_at is None:
        return
    with st.expander(_words(run, forks), icon=":material/fork_right:"):
        for depth, one in tree([*ancestors, run, *forks[:MOST]]):
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                if depth:
                    st.markdown(":gray[" + "\u2003" * (depth - 1) + "└]", width="content")
                link("run", f"{one_line(one.name)} #{one.id}", id=one.id)
                left = "" if one.forked_at is None else f"from step {count(one.forked_at)}"
                st.caption(" · ".join(filter(None, [left, "this run" if one.id == run.id else ""])), width="content")
        if len(forks) > MOST:
            st.caption("The list of runs has the others.")
        others = [one.id for one in (*ancestors, run, *forks[:MOST])]
        link("compare", "Compare these", icon=":material/stacked_line_chart:", runs=",".join(map(str, others)))


def _words(run: Run, forks: Sequence[Run]) -> str:
    parts = [f"Fork of run {run.parent_id} at step {count(run.forked_at)}" if run.forked_at is not None else ""]
    parts.append(
        f"{'its' if parts[0] else 'Its'} forks: {len(forks[:MOST])}{'+' if len(forks) > MOST else ''}" if forks else ""
    )
    return " · ".join(filter(None, parts))


def tree(runs: Sequence[Run]) -> Iterator[tuple[int, Run]]:
    """The runs with how deep each lies below the first ancestor that is among them, a parent before its forks."""
    known = {run.id for run in runs}
    children: dict[int | None, list[Run]] = {}
    for run in runs:
        forked = run.forked_at is not None and run.parent_id in known
        children.setdefault(run.parent_id if forked else None, []).append(run)

    def below(parent: int | None, depth: int) -> Iterator[tuple[int, Run]]:
        for run in children.get(parent, ()):
            yield depth, run
            yield from below(run.id, depth + 1)

    yield from below(None, 0)
