"""How the prompts of a data set spread over success rates: what a policy always, never, and sometimes gets right."""

from collections.abc import Sequence
from functools import lru_cache

import altair as alt
import pandas as pd

from dashboard.charts.figure import PICKED, Figure, Spec, canvas, specification, tips
from dashboard.charts.palette import INK, NEUTRAL

NEVER, ALWAYS = 0, 11
LABELS = ("never", *(f"{low}–{low + 10}" for low in range(0, 100, 10)), "always")
"""Of the bars: none right, ten tenths of success rates between, in percent, all right."""


def bar_of(rate: float) -> int:
    """The bar in which a prompt of this success rate counts."""
    if rate <= 0 or rate >= 1:
        return NEVER if rate <= 0 else ALWAYS
    return 1 + min(9, int(10 * rate + 1e-9))


def bar_title(bar: int) -> str:
    """Which prompts count in a bar."""
    return {NEVER: "Never right", ALWAYS: "Always right"}.get(bar, f"{LABELS[bar]} % right")


def success_rates_figure(rates_P: Sequence[float], band: tuple[float, float]) -> Figure:
    """The number of prompts in each bar, those inside of the band in full colour; a click picks a bar's number."""
    counts = [0] * len(LABELS)
    kept = [0] * len(LABELS)
    for rate in rates_P:
        counts[bar_of(rate)] += 1
        kept[bar_of(rate)] += band[0] <= rate <= band[1]
    rows = [
        {"bar": bar, "label": label, "prompts": count, "kept": inside, "shown": str(count) if count else ""}
        for bar, (label, count, inside) in enumerate(zip(LABELS, counts, kept, strict=True))
    ]
    return Figure(_spec(), pd.DataFrame(rows))


@lru_cache(maxsize=1)
def _spec() -> Spec:
    x = alt.X(
        "label:N", title="success rate in percent", sort=list(LABELS), axis=alt.Axis(labelAngle=0, labelFontSize=10)
    )
    tooltip = tips(("label:N", "success rate in percent"), ("prompts:Q", "prompts"), ("kept:Q", "of them in the band"))
    picked = alt.selection_point(name=PICKED, on="click", fields=["bar"], empty=False)
    base = canvas().encode(x=x)
    of_all = base.mark_bar(cornerRadius=2, color=NEUTRAL, opacity=0.5, cursor="pointer").encode(
        y=alt.Y("prompts:Q", title="prompts", axis=alt.Axis(tickMinStep=1)), tooltip=tooltip
    )
    inside = base.mark_bar(cornerRadius=2, color=INK, cursor="pointer").encode(y="kept:Q", tooltip=tooltip)
    numbers = base.mark_text(dy=-7, fontSize=11).encode(y="prompts:Q", text="shown:N")
    return specification(alt.layer(of_all.add_params(picked), inside, numbers).properties(height=220))
