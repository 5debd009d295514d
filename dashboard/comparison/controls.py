"""What is drawn, along which axis, taken together by what: every choice stands in the address."""

from collections.abc import Iterator
from dataclasses import dataclass

import streamlit as st

from backend.contract.records import Run
from dashboard.charts.meaning import Meaning, in_order, meaning
from dashboard.charts.seed_groups import COLOURS
from dashboard.charts.series import XAxis
from dashboard.comparison.settings import ALONE, RECIPE, choices

DEFAULT = ("eval/pass@1", "reward", "kl", "entropy", "completions/mean_length", "group_reward_std")
ON_PAIRS = ("eval/accuracy", "eval/margin", "loss", "eval/loss")  # where no run samples while it trains
AXES: dict[str, XAxis] = {"step": "step", "samples": "samples", "tokens": "tokens", "wall time": "time"}


@dataclass(frozen=True)
class Controls:
    """The choices."""

    names: list[str]
    by: str
    axis: XAxis
    weight: float
    log: bool

    def laid_out(self) -> Iterator[tuple[st.delta_generator.DeltaGenerator, str, Meaning]]:
        """A place for each chart, two beside each other."""
        for start in range(0, len(self.names), 2):
            for column, name in zip(st.columns(2), self.names[start : start + 2], strict=False):
                place = column.container(border=True, key=f"compare-{self.names.index(name)}")
                yield place, name, meaning(name)


def show_controls(runs: list[Run], *, sweep: bool) -> Controls:
    """The choices in two lines."""
    logged = in_order(name for run in runs for name in run.summary if ":" not in name)
    options = in_order([*logged, *DEFAULT, *ON_PAIRS])
    first = DEFAULT if not runs or any(run.kind == "grpo" for run in runs) else ON_PAIRS
    names = st.multiselect(
        "Charts",
        options,
        default=list(first),
        format_func=lambda name: meaning(name).title,
        key="metrics",
        bind="query-params",
    )
    together, along, smoothing, scale = st.columns([3, 4, 3, 3], vertical_alignment="bottom")
    fields = choices(runs)
    by = together.selectbox(
        "Group by",
        fields,
        index=fields.index(RECIPE if sweep else ALONE),
        key="by",
        bind="query-params",
        help="Runs that have the same there are drawn as one line: the mean over their seeds, with its 95 % interval\\.",
    )
    axis = along.segmented_control("Along", list(AXES), default="step", required=True, key="x", bind="query-params")
    weight = smoothing.slider("Smoothing", 0.0, 0.95, 0.6, 0.05, key="smooth", bind="query-params")
    log = scale.toggle(
        "Logarithmic", key="log", bind="query-params", help="The vertical axis; values of 0 and below are left out."
    )
    return Controls(names, by, AXES[str(axis)], weight, log)


def show_highlights(labels: list[str]) -> list[str]:
    """Which groups are drawn in front; none: those that the page finds worth it."""
    return st.pills(
        "In front",
        labels,
        selection_mode="multi",
        key="front",
        bind="query-params",
        help=f"The other groups are thin grey lines\\. At most {len(COLOURS)} at once are easy to tell apart\\.",
    )
