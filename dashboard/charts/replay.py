"""What made a step's update: the share of each group, how far gradients agree, and how completions moved."""

from collections.abc import Sequence
from functools import lru_cache

import altair as alt
import pandas as pd

from backend.contract.groups import Group
from backend.contract.replay import Replayed
from dashboard.charts.figure import Figure, Spec, canvas, specification, tips
from dashboard.charts.palette import DISCOURAGED, NEUTRAL, REINFORCED

MOMENTUM, DECAY = "earlier steps (momentum)", "weight decay"
MOST_SHARES = 20
_RISES = {
    "rose, as reinforced": REINFORCED,
    "fell, as discouraged": DISCOURAGED,
    "against its advantage": "#d64550",
    "no advantage": NEUTRAL,
}


def group_name(index: int) -> str:
    """As people count."""
    return f"group {index + 1}"


def shares_figure(found: Replayed) -> Figure:
    """A bar for each summand of the update, the largest first: groups, momentum, weight decay. They add up to 1."""
    parts = [(group_name(part.index), part.share, "group") for part in found.groups]
    parts = sorted(parts, key=lambda part: -abs(part[1]))
    shown, others = parts[:MOST_SHARES], parts[MOST_SHARES:]
    if others:
        shown.append((f"{len(others)} other groups", sum(share for _, share, _ in others), "group"))
    rest = [(MOMENTUM, found.momentum, "rest"), (DECAY, found.decay, "rest")]
    shown += [one for one in rest if one[1]]
    data = pd.DataFrame(shown, columns=["part", "share", "kind"])
    return Figure(_shares_spec(tuple(name for name, _, _ in shown)), data)


@lru_cache(maxsize=64)
def _shares_spec(parts: tuple[str, ...]) -> Spec:
    y = alt.Y("part:N", title=None, sort=list(parts), axis=alt.Axis(labelLimit=220, labelOverlap=False))
    x = alt.X("share:Q", title="share of the update", axis=alt.Axis(format="%"))
    colours = alt.Scale(domain=["group", "rest"], range=[REINFORCED, NEUTRAL])
    said = tips(("part:N", "part"), ("share:Q", "share of the update", "+.1%"))
    bars = (
        canvas()
        .mark_bar(cornerRadius=2)
        .encode(x=x, y=y, color=alt.Color("kind:N", scale=colours, legend=None), tooltip=said)
    )
    return specification(bars.properties(height=24 * len(parts) + 70))


def agreement_figure(found: Replayed) -> Figure:
    """The cosine of each group's gradient with each other's, blue where they pull the same way."""
    names = [group_name(index) for index in found.compared]
    rows = [
        (one, other, cosine)
        for one, row in zip(names, found.agreement, strict=True)
        for other, cosine in zip(names, row, strict=True)
    ]
    return Figure(_agreement_spec(tuple(names)), pd.DataFrame(rows, columns=["one", "other", "cosine"]))


@lru_cache(maxsize=64)
def _agreement_spec(names: tuple[str, ...]) -> Spec:
    scale = alt.Scale(domain=[-1, 0, 1], range=[DISCOURAGED, "#e9eaec", REINFORCED], interpolate="rgb")
    axis = alt.Axis(labelAngle=-40, labelOverlap=len(names) > 24)
    said = tips(("one:N", "of"), ("other:N", "and"), ("cosine:Q", "cosine", "+.3f"))
    cells = (
        canvas()
        .mark_rect()
        .encode(
            x=alt.X("one:N", title=None, sort=list(names), axis=axis),
            y=alt.Y("other:N", title=None, sort=list(names), axis=alt.Axis(labelOverlap=len(names) > 24)),
            color=alt.Color(
                "cosine:Q", scale=scale, legend=alt.Legend(orient="top", title="cosine", gradientLength=160)
            ),
            tooltip=said,
        )
    )
    layers: list[alt.Chart] = [cells]
    if len(names) <= 12:
        layers.append(
            cells.mark_text(fontSize=11).encode(text=alt.Text("cosine:Q", format="+.2f"), color=alt.value("#20242a"))
        )
    return specification(alt.layer(*layers).properties(height=140 + max(120, min(480, 30 * len(names)))))


def moves_figure(groups: Sequence[Group]) -> Figure:
    """Each completion at its advantage and at how far its log-prob rose or fell."""
    rows = [
        (group_name(group.index), one.index + 1, one.advantage, move, kind_of_move(one.advantage, move))
        for group in groups
        for one in group.completions
        if one.advantage is not None and (move := moved(one.logprob_sum, one.logprob_sum_after)) is not None
    ]
    columns = ["group", "completion", "advantage", "move", "label"]
    return Figure(_moves_spec(), pd.DataFrame(rows, columns=columns))


def moved(before: float | None, after: float | None) -> float | None:
    """How far a log-prob rose, in nats; None where one of the two was not measured."""
    return None if before is None or after is None else after - before


def kind_of_move(advantage: float, move: float) -> str:
    """Whether a completion went where its advantage pushed it."""
    same, fell, against, none = _RISES
    if advantage == 0:
        return none
    if advantage * move <= 0:
        return against
    return same if advantage > 0 else fell


@lru_cache(maxsize=1)
def _moves_spec() -> Spec:
    said = tips(
        ("group:N", "group"),
        ("completion:Q", "completion"),
        ("advantage:Q", "advantage", "+.3f"),
        ("move:Q", "change in nats", "+.4g"),
    )
    scale = alt.Scale(domain=list(_RISES), range=list(_RISES.values()))
    legend = alt.Legend(orient="top", title=None, symbolOpacity=1)
    dots = (
        canvas()
        .mark_circle(size=70, opacity=0.8)
        .encode(
            x=alt.X("advantage:Q", title="advantage"),
            y=alt.Y("move:Q", title="change of its log-prob, in nats"),
            color=alt.Color("label:N", scale=scale, legend=legend),
            tooltip=said,
        )
    )
    lines = [
        canvas()
        .transform_aggregate(rows="count()")
        .mark_rule(color=NEUTRAL, strokeDash=[3, 3])
        .encode(**{axis: alt.datum(0)})
        for axis in "xy"
    ]
    return specification(alt.layer(*lines, dots).properties(height=300))
