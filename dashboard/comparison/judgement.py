"""The metric by which runs are judged, and the tables of their results."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import pandas as pd
import streamlit as st

from backend.contract.protocol import EVALUATION
from backend.contract.records import Run
from dashboard.charts.interval import Estimate
from dashboard.charts.meaning import meaning
from dashboard.comparison.controls import metrics_of
from dashboard.format import MISSING, number, signed

T = TypeVar("T")
_FIRST = ("eval/pass@1", "eval/accuracy", "reward", "loss")  # by the first that is logged, unless somebody chose
_DECIMALS = 6  # smaller spreads are written with an exponent
_ROWS = 14  # a longer table scrolls


class Judgement(NamedTuple):
    """The metric, and of how many of its last values the final one is the mean."""

    name: str
    tail: int

    def title(self, name: str) -> str:
        """A metric as the head of a column: Reward, last 10. For an evaluation, only the last value counts."""
        title = meaning(name).title
        return title if name.startswith(EVALUATION) or self.tail == 1 else f"{title}, last {self.tail}"

    @property
    def words(self) -> str:
        """How the numbers are computed."""
        return (
            f"Final: the mean of the last {self.tail} values; for an evaluation, the last value. Best: the highest value if higher is "
            "better, the lowest if lower is better; other metrics have no best."
        )


def choose_judgement(drawn: Sequence[str], runs: Sequence[Run]) -> Judgement:
    """The two choices."""
    metric, tail = st.columns([3, 5], vertical_alignment="bottom")
    options = list(dict.fromkeys([*drawn, *metrics_of(runs)]))
    logged = {name for run in runs for name in run.summary}
    usual = next((name for name in _FIRST if name in logged and name in options), options[0])
    name = metric.selectbox(
        "Compared by",
        options,
        index=options.index(usual),
        format_func=lambda name: meaning(name).title,
        key="judged",
        bind="query-params",
    )
    last = tail.number_input(
        "Last values to average",
        1,
        200,
        10,
        key="last",
        bind="query-params",
        width=180,
        help="For metrics that are logged at every step; an evaluation is already the mean of many samples\\.",
    )
    return Judgement(name, int(last))


def in_rank(them: Sequence[T], final: Callable[[T], float | None], judged: Judgement) -> list[T]:
    """The best first, those without a value last."""
    sign = 1 if meaning(judged.name).better == "lower" else -1
    return sorted(them, key=lambda one: math.inf if (value := final(one)) is None else sign * value)


def draw_table(table: pd.DataFrame, *, key: str, words: Sequence[str]) -> None:
    """Draw the table, with numbers to the right."""
    numbers = [title for title in table.columns if title not in (*words, "open")]
    st.dataframe(
        table,
        hide_index=True,
        key=key,
        height="content" if len(table) <= _ROWS else 530,
        column_config={title: st.column_config.TextColumn(title, alignment="right") for title in numbers}
        | {"open": st.column_config.LinkColumn("", display_text="open", width=60)},
    )


def mean_and_std(found: Estimate | None) -> str:
    """0.832 ± 0.012: two digits of the spread, and the mean as exactly; a single value has no spread."""
    if found is None:
        return MISSING
    if not found.std:
        return number(found.mean) if found.std is None else f"{number(found.mean)} ± 0"
    decimals = max(0, 1 - math.floor(math.log10(found.std)))
    if decimals > _DECIMALS:
        return f"{number(found.mean)} ± {number(found.std)}"
    return f"{found.mean:,.{decimals}f} ± {found.std:,.{decimals}f}".replace("-", "−")


def gain_and_interval(found: Estimate | None) -> str:
    """+0.412 [+0.380, +0.444]."""
    if found is None:
        return MISSING
    if found.low is None:
        return signed(found.mean)
    return f"{signed(found.mean)} [{signed(found.low)}, {signed(found.high)}]"
