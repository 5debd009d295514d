"""A run's charts: is it learning, and why."""

import streamlit as st

from backend.contract.records import Metrics, Run, Series
from dashboard.charts.preference import pair_panels
from dashboard.charts.training import Panel, panels, training_figure
from dashboard.components.address import choose, chosen, leave_for_groups
from dashboard.components.chart import heading, show
from dashboard.components.group_arithmetic import estimator
from dashboard.components.stored import number_at, reward_names, text_at
from dashboard.session import client, guard

COLUMNS = 3
POINTS = 400  # of each series: more than a chart is wide


def draw_overview(run: Run) -> None:
    """All charts of the run, over its steps; a click on a step opens its groups."""
    leave_for_groups()
    with guard():
        metrics = client().metrics(run.id, max_points=POINTS)
    weight = st.session_state.get("smoothing", 0.6)
    shown = [panel for panel in _panels(run, list(metrics.series)) if _has_place(panel, metrics)]
    for start in range(0, len(shown), COLUMNS):
        for column, panel in zip(st.columns(COLUMNS), shown[start : start + COLUMNS], strict=False):
            with column:
                _draw(panel, run, metrics, weight)


def _panels(run: Run, names: list[str]) -> list[Panel]:
    return panels(names, reward_names(run.config)) if run.kind == "grpo" else pair_panels(run.kind, names)


def _has_place(panel: Panel, metrics: Metrics) -> bool:
    """Before the first step every chart has its place; later, those without a metric of the run leave."""
    return "loss" not in metrics.series or any(name in metrics.series for name in panel.labels)


def _draw(panel: Panel, run: Run, metrics: Metrics, weight: float) -> None:
    with st.container(border=True, height="stretch", key=f"panel-{panel.key.replace('/', '-').replace('@', '-')}"):
        st.markdown(heading(panel.title, panel.unit), help=panel.help)
        steps = int(number_at(run.config, "budget.steps", run.progress.total_steps))
        figure = training_figure(panel, metrics.series, steps=steps, weight=weight, mark=chosen())
        show(
            figure,
            key=f"chart-{run.id}-{panel.key}",
            about=panel.title,
            on_pick=None if panel.dots or not panel.opens_groups else lambda step: choose(step, then_open=True),
        )
        if panel.key == "loss" and run.kind == "grpo":
            st.caption(_about_loss(run, metrics.series.get("loss")))


def _about_loss(run: Run, loss: Series | None) -> str:
    """Why a loss near 0 is no fault: the question that everybody asks."""
    how = estimator(run.config)
    if how.kind == "gae":
        return "The critic's error is part of it. Judge the run by its reward."
    if loss is None or text_at(run.config, "algorithm.surrogate.kind") != "clip" or not how.centred:
        return "Judge the run by its reward."
    if number_at(run.config, "algorithm.updates_per_batch", 1) > 1:
        return "Small values are expected: the advantages of a group add up to 0."
    in_the_loss = text_at(run.config, "algorithm.kl.placement", "loss") == "loss"
    penalty = number_at(run.config, "algorithm.kl.beta", 0.0) if in_the_loss else 0.0
    rest = f" What remains is the KL penalty, {penalty:g} × KL." if penalty else ""
    return (
        f"About 0 is expected: the ratio is 1 and the advantages of a group add up to 0. The gradient is not 0.{rest}"
    )
