"""The settings in which the runs differ, as parallel coordinates that end at each run's result."""

import pandas as pd
import streamlit as st

from backend.contract.base import Json
from backend.contract.records import Run
from dashboard.charts.comparison import View
from dashboard.charts.meaning import meaning
from dashboard.charts.outcome import outcome
from dashboard.charts.parallel import BRUSHED, Axis, Value, parallel_figure, shown, within
from dashboard.comparison.judgement import Judgement, choose_judgement, draw_table, in_rank
from dashboard.comparison.metrics import fetch, with_whole_ends
from dashboard.comparison.selection import label
from dashboard.comparison.settings import cell, differing, short_names, swept
from dashboard.components.address import read_all, write
from dashboard.components.chart import offer_pictures
from dashboard.format import number
from dashboard.session import guard
from dashboard.stored import get

_MOST = 6  # axes at first
_OUTCOME = "outcome"
_BRUSH = "brush"  # in the address, one for each brushed axis: its field and the range, from 0 to 1
_CHART = "parallel"


def draw_parallel(runs: list[Run]) -> None:
    """Draw the choice of axes, the figure, and the runs in the brushed ranges."""
    fields = differing(runs)
    if len(runs) < 2 or not fields:
        st.caption("If the runs differ in a field other than their seed, each becomes a line through these fields.")
        return
    judged = choose_judgement((), runs)
    chosen = st.multiselect(
        "Fields",
        fields,
        default=swept(runs)[:_MOST],
        key="fields",
        bind="query-params",
        placeholder="Which fields",
        wrap=True,
    )
    view = View("step", 0.0, log=False, steps=0, by_run=True)
    with guard():
        found = with_whole_ends(fetch(runs, [judged.name], view), runs, [judged.name], judged.tail)
    finals = {run.id: outcome(judged.name, found[run.id].series, judged.tail).final for run in runs}
    names, ranges = short_names(chosen), _brushed()
    axes = [
        *(Axis(names[one], {run.id: _value(get(run.config, one)) for run in runs}, ranges.get(one)) for one in chosen),
        Axis(judged.title(judged.name), dict(finals), ranges.get(_OUTCOME)),
    ]
    _draw(axes, [*chosen, _OUTCOME], runs, judged)
    _draw_runs(runs, axes, finals, judged)


def _value(value: Json) -> Value:
    """A number as it is, everything else as text; an absent value has no place on the axis."""
    if value is None:
        return None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else cell(value)


def _draw(axes: list[Axis], fields: list[str], runs: list[Run], judged: Judgement) -> None:
    ranges = _brushed()
    # each choice is a new chart to the browser, which would otherwise keep the dragged range; it is drawn from the data
    key = f"{_CHART}-{len(axes)}-{_written(ranges)}"

    def brushed() -> None:
        dragged = st.session_state[key]["selection"].get(BRUSHED) or {}
        places, ends = dragged.get("place") or [0.0, 0.0], dragged.get("level") or [0.0, 0.0]
        touched = [field for place, field in enumerate(fields) if min(places) <= place <= max(places)]
        if touched and min(ends) < max(ends):
            _put(ranges | dict.fromkeys(touched, (min(ends), max(ends))))

    figure = parallel_figure(axes, {run.id: label(run) for run in runs}, better=meaning(judged.name).better)
    about = "The settings of each run and its result"
    with st.container(border=True, key=_CHART), st.container(key=f"figure-{_CHART}", gap=None):
        st.vega_lite_chart(
            figure.data, figure.spec, key=key, alt=about, height="content", on_select=brushed, selection_mode=[BRUSHED]
        )
        offer_pictures(figure, key=_CHART, about=about)
    st.caption(
        "Each line is a run: the darker the violet, the better the result; grey runs have no result yet. Drag along an axis to keep "
        "only the runs that cross it there; dragging on more axes narrows further."
    )


def _draw_runs(runs: list[Run], axes: list[Axis], finals: dict[int, float | None], judged: Judgement) -> None:
    kept = within(axes)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"**{len(kept)} of {len(runs)} runs**", width="content")
        if _brushed():
            st.button("All runs again", icon=":material/zoom_out:", key="all-runs", on_click=_put, args=({},))
    rows = [
        {
            "run": label(run),
            **{axis.name: shown(axis.values[run.id]) for axis in axes[:-1]},
            f"→ {axes[-1].name}": number(finals[run.id]),  # a field may have the metric's name
            "open": f"/run?id={run.id}",
        }
        for run in in_rank([run for run in runs if run.id in kept], lambda run: finals[run.id], judged)
    ]
    draw_table(pd.DataFrame(rows, columns=list(rows[0]) if rows else ["run"]), key="brushed-runs", words=("run",))


def _brushed() -> dict[str, tuple[float, float]]:
    """Field -> the range of its axis, as the address has them."""
    ranges = {}
    for entry in read_all(_BRUSH):
        field, _, ends = entry.rpartition(":")
        low, _, high = ends.partition("-")
        try:
            ranges[field] = (float(low), float(high))
        except ValueError:
            continue
    return ranges


def _put(ranges: dict[str, tuple[float, float]]) -> None:
    write(**{_BRUSH: _written(ranges)})


def _written(ranges: dict[str, tuple[float, float]]) -> list[str]:
    return [f"{field}:{max(0.0, low):.3f}-{max(0.0, high):.3f}" for field, (low, high) in ranges.items()]
