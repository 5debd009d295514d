"""The dead groups to expect, by group size."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import altair as alt
import pandas as pd

from dashboard.charts.figure import Figure, Spec, canvas, specification, tips
from dashboard.charts.palette import INK, NEUTRAL
from dashboard.format import percent

ABOVE = -8  # pixels: the row of numbers stands over the plot
LITTLE = 0.01
OTHER = "#a9c7e8"  # sizes that the form does not have


@dataclass(frozen=True)
class Share:
    """What is expected of groups of one size, as shares of all groups."""

    group_size: int
    dead: float  # all with one reward: nothing tells two completions apart
    right_or_wrong: float  # all right, or all wrong, whatever their rewards
    at_mean_rate: float  # p^G + (1 − p)^G at the mean rate, too low where prompts differ

    @property
    def differs(self) -> bool:
        """Whether right and wrong alone say something else than the rewards."""
        return abs(self.dead - self.right_or_wrong) > 1e-9


def in_percent(share: float) -> str:
    """A forecast share: less than 1 % also where the sample held no such group, since few prompts prove no 0."""
    return percent(share) if share >= LITTLE else "< 1 %"


def dead_forecast_figure(shares: Sequence[Share], own_size: int) -> Figure:
    """A bar for each size, the form's own in full colour; a tick where right and wrong alone say otherwise; the mean rate's formula, dashed."""
    rows = [
        {
            "size": share.group_size,
            "share": share.dead,
            "shown": in_percent(share.dead).replace(" ", ""),
            "right_or_wrong": share.right_or_wrong if share.differs else None,
            "rate": share.at_mean_rate,
            "own": share.group_size == own_size,
            "colour": INK if share.group_size == own_size else OTHER,
        }
        for share in shares
    ]
    return Figure(_spec(), pd.DataFrame(rows))


@lru_cache(maxsize=1)
def _spec() -> Spec:
    x = alt.X("size:O", title="group size G", axis=alt.Axis(labelAngle=0))
    scale = alt.Scale(domain=alt.DomainUnionWith(unionWith=[0, 0.2]), nice=True)
    y = alt.Y("share:Q", title="share of groups", scale=scale, axis=alt.Axis(format="%", tickCount=5))
    dead = ("share:Q", "all rewards equal", ".1%")
    right_or_wrong = ("right_or_wrong:Q", "all right or all wrong", ".1%")
    tooltip = tips(("size:O", "group size"), dead, right_or_wrong, ("rate:Q", "at the mean rate", ".1%"))
    base = canvas().encode(x=x)
    bars = base.mark_bar(cornerRadius=2).encode(y=y, color=alt.Color("colour:N", scale=None), tooltip=tooltip)
    numbers = base.mark_text(fontSize=11).encode(y=alt.value(ABOVE), text="shown:N")  # where no line crosses them
    ticks = base.mark_tick(thickness=2.5, color="#b6992d").encode(
        y=alt.Y("right_or_wrong:Q", scale=scale), tooltip=tooltip
    )
    line = base.mark_line(strokeDash=[4, 4], color=NEUTRAL, strokeWidth=1.5).encode(y=alt.Y("rate:Q", scale=scale))
    own = base.transform_filter("datum.own").mark_rect(color=INK, opacity=0.12)
    return specification(alt.layer(own, bars, line, ticks, numbers).properties(height=230))
