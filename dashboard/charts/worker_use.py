"""The runs that each worker held over time, one lane for each worker."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache

import altair as alt
import pandas as pd

from backend.contract.records import Held
from dashboard.charts.figure import Figure, Spec, canvas, specification, tips
from dashboard.charts.palette import DISCOURAGED, NEUTRAL, REINFORCED, UNSCORED
from dashboard.format import aware, duration

LANE, AXIS = 34, 30  # pixels
IDLE = "idle or away"
# the states of a run in their colours; a run that was given back waits for the next worker
ENDS = {
    "running": REINFORCED,
    "finished": "#59a14f",
    "stopped": DISCOURAGED,
    "paused": DISCOURAGED,
    "released": "#a0cbe8",
    "failed": UNSCORED,
    "lost": UNSCORED,
}


def beginning(held: Sequence[Held], now: datetime) -> datetime:
    """The time at which the lanes begin: the first known run of the last day, and at least an hour ago."""
    first = min((aware(one.since) for one in held), default=now)
    return max(now - timedelta(days=1), min(first, now - timedelta(hours=1)))


def busy(held: Sequence[Held], start: datetime, now: datetime) -> float:
    """The share of the time from `start` to `now` in which a worker held a run; a sample between two steps counts once."""
    seconds, reached = 0.0, start
    for one in sorted(held, key=lambda one: one.since):
        begin, end = max(reached, aware(one.since)), _until(one, now)
        seconds += max(0.0, (end - begin).total_seconds())
        reached = max(reached, end)
    return seconds / (now - start).total_seconds()


def worker_use_figure(held: Sequence[Held], now: datetime) -> Figure:
    """A bar for each run that a worker held; the lane is grey while it held none."""
    start = beginning(held, now)
    lanes = sorted({one.worker for one in held})
    rows = [_row(lane, start, now, "", IDLE) for lane in lanes]
    for one in held:
        name = f"{one.run_name} (run {one.run_id})"
        rows.append(_row(one.worker, max(start, aware(one.since)), _until(one, now), name, one.end or "running"))
    return Figure(_spec(tuple(lanes)), pd.DataFrame(rows))


def _until(one: Held, now: datetime) -> datetime:
    """Never before it began, nor later than now: the backend's wall clock may have been set back, and need not be this machine's."""
    return max(aware(one.since), now if one.end is None else min(now, aware(one.until)))


def _row(worker: str, start: datetime, end: datetime, run: str, state: str) -> dict[str, object]:
    for_ = duration((end - start).total_seconds())
    return {"worker": worker, "from": start, "to": end, "run": run, "state": state, "for": for_}


@lru_cache(maxsize=16)
def _spec(lanes: tuple[str, ...]) -> Spec:
    y = alt.Y("worker:N", title=None, sort=list(lanes), axis=alt.Axis(domain=False, ticks=False, labelLimit=180))
    x = alt.X("from:T", title=None, axis=alt.Axis(format="%H:%M", grid=False, tickCount=8))
    scale = alt.Scale(domain=list(ENDS), range=list(ENDS.values()))
    base = canvas().encode(x=x, x2="to:T", y=y)
    track = base.transform_filter(f"datum.state === {IDLE!r}").mark_bar(color=NEUTRAL, opacity=0.18, height=LANE // 2)
    held = base.transform_filter(f"datum.state !== {IDLE!r}")
    time = "%Y-%m-%d %H:%M:%S"
    bars = held.mark_bar(height=LANE // 2, cornerRadius=2, strokeWidth=1).encode(
        color=alt.Color("state:N", scale=scale, legend=None),
        stroke=alt.Stroke("state:N", scale=scale, legend=None),  # a run of a second is seen, too
        tooltip=tips(
            ("run:N", "run"), ("state:N", "state"), ("from:T", "from", time), ("to:T", "to", time), ("for:N", "for")
        ),
    )
    return specification(alt.layer(track, bars).properties(height=LANE * len(lanes) + AXIS))
