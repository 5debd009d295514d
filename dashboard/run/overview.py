"""A run's charts: is it learning, and why."""

from collections.abc import Hashable

import streamlit as st

from backend.contract.client import ApiError, Unreachable
from backend.contract.preflight import TimeEstimate
from backend.contract.records import BY_RANK, PHASES, STARTING, TERMINAL, Metrics, Run, Series
from dashboard.algorithm.estimators import stored_estimator
from dashboard.charts.figure import Figure
from dashboard.charts.meaning import in_order, meaning
from dashboard.charts.training import Panel, panels_of, single, training_figure
from dashboard.components.address import choose, chosen, zoom, zoom_out, zoom_to
from dashboard.components.chart import heading, place_key, show
from dashboard.components.listing import across
from dashboard.components.live import tick_of_whole_page
from dashboard.components.style import CHARTS
from dashboard.format import count, counted, duration, plain
from dashboard.health import draw_health_line
from dashboard.run.checkpoints import draw_fork_menu
from dashboard.run.ranks import draw_slow_line
from dashboard.session import client, guard, in_the_way, run_now
from dashboard.shared import Shared
from dashboard.status import phase_in_words
from dashboard.stored import number_at, text_at
from dashboard.wording import in_words

COLUMNS = 3
# Charts at first, as many as a laptop's screen shows: drawing one takes a browser a tenth of a second.
AT_ONCE = 2 * COLUMNS
KEPT = 5.0  # seconds for which a chart of a run that has not moved is not computed again
POINTS = 250  # of each series: about one for two pixels; 500 and 1,000 steps divide evenly into it
_ON_PAIRS = "A step reads pairs and updates the weights"
_SAMPLED = "A step samples completions, scores them and updates the weights"
_ENDED = "**No step was done, so there is nothing to draw.** The Log says what happened until the end."
_SCRIPT = """
export default function ({ parentElement, setStateValue }) {
  const place = parentElement.host ?? parentElement
  const watch = new IntersectionObserver((seen) => seen.some((one) => one.isIntersecting) && setStateValue("seen", true))
  watch.observe(place)
  return () => watch.disconnect()
}
"""
_place = st.components.v2.component("groupscope.place", html="<span>&nbsp;</span>", js=_SCRIPT)


@st.cache_resource
def _series() -> Shared[Metrics]:
    return Shared(seconds=KEPT, most=32)


@st.cache_resource
def _figures() -> Shared[Figure]:
    return Shared(seconds=KEPT, most=256)


def _version(run: Run) -> Hashable:
    """A key that changes as soon as any metric of the run has a new value, or the run has fewer steps."""
    return run.id, run.attempt, run.progress.step, tuple(run.summary.items())


def draw_overview(run: Run) -> None:
    """Draw the run's charts over its steps; a click on a step opens its groups, dragging over steps zooms in."""
    draw_health_line(run)
    draw_slow_line(run)
    measured = [name for name in run.summary if not (name.endswith(":first") or name.startswith(BY_RANK))]
    shown = [panel for panel in panels_of(run, measured) if any(name in run.summary for name in panel.labels)]
    if not run.progress.step:
        _draw_first_step(run)
    if not measured:
        if run.progress.step:
            st.info("No metric of this run was recorded, so there is nothing to draw.", icon=":material/show_chart:")
        return
    drawn = {name for panel in shown for name in panel.labels}
    others = [name for name in in_order(measured) if name not in drawn]
    weight, more = _draw_controls(run, others)
    if run.recorded and not more:  # nobody knows what matters of another trainer's: all of it is there, further down
        more = others
    shown += [single(name) for name in more]
    names, part = [name for panel in shown for name in panel.labels], zoom()
    first, last = part or (None, None)
    with guard():
        metrics = _series().get(
            (_version(run), tuple(names), part),
            lambda: client().metrics(run.id, names=names, from_step=first, to_step=last, max_points=POINTS),
        )
    with st.container(key=CHARTS):
        _draw_rows(shown[:AT_ONCE], run, metrics, weight)
    for start in range(AT_ONCE, len(shown), COLUMNS):
        if not in_sight(f"below-{run.id}-{start}"):
            st.caption(f"Below: {plain(' · '.join(panel.title for panel in shown[start:]))}")
            return
        _draw_rows(shown[start : start + COLUMNS], run, metrics, weight)


def _draw_rows(shown: list[Panel], run: Run, metrics: Metrics, weight: float) -> None:
    for place, panel in across(shown, COLUMNS):
        with place:
            _draw(panel, run, metrics, weight)


def _draw_controls(run: Run, others: list[str]) -> tuple[float, list[str]]:
    """Draw the smoothing, the choice of further metrics, and the button out of a zoom. Returns the first two."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="chart-controls"):
        weight = st.slider("Smoothing", 0.0, 0.95, 0.6, 0.05, key="smoothing", bind="query-params", width=260)
        more = st.multiselect(
            "More charts",
            others,
            key="more",
            bind="query-params",
            format_func=lambda name: name if (title := meaning(name).title) == name else f"{title} ({name})",
            placeholder=f"choose from {counted(len(others), 'other metric')}" if others else "no other metric yet",
            disabled=not others,
            width=420,
        )
        part = zoom()
        if part:
            label = f"Steps {count(part[0])} to {count(part[1])}: show all"
            st.button(label, icon=":material/zoom_out_map:", key="zoom-out", on_click=zoom_out)
        else:
            click = "; click a step to open its groups" if run.by_groups else ""
            thinned = run.progress.step > POINTS
            means = "A point is the mean of several steps, the faint band their range. " if thinned else ""
            st.caption(f":material/zoom_in: {means}Drag across a chart to zoom in{click}.")
        if run.kind == "grpo":
            draw_fork_menu(run)
    return weight, more


def _draw(panel: Panel, run: Run, metrics: Metrics, weight: float) -> None:
    with st.container(border=True, height="stretch", key=place_key("panel", panel.key)):
        steps = int(number_at(run.config, "budget.steps", run.progress.total_steps))
        mark, part = chosen(), zoom()
        figure = _figures().get(
            (_version(run), panel.key, tuple(panel.labels), weight, mark, part),
            lambda: training_figure(panel, metrics.series, steps=steps, weight=weight, mark=mark, zoom=part),
        )
        st.markdown(heading(plain(panel.title), panel.unit), help=panel.help)
        show(
            figure,
            key=f"chart-{run.id}-{panel.key}-{part}",  # each range is a new chart, without the frame of the drag
            about=panel.title,
            file=f"run-{run.id}-{panel.key}",
            on_pick=None if panel.dots or not panel.opens_groups else lambda step: choose(step, then_open=True),
            on_zoom=zoom_to,
        )
        if panel.key == "loss" and run.by_groups:
            st.caption(_about_loss(run, metrics.series.get("loss")))


def _about_loss(run: Run, loss: Series | None) -> str:
    """Why a loss near 0 is not an error, which everybody asks."""
    how = stored_estimator(run.config)
    if how.reads == "tokens":
        return "The critic's error is part of it. Judge the run by its reward."
    if loss is None or run.recorded or text_at(run.config, "algorithm.surrogate.kind") != "clip" or not how.centred:
        return "Judge the run by its reward."
    aggregation = text_at(run.config, "algorithm.aggregation", "sequence_mean")
    if aggregation not in ("sequence_mean", "group_token_mean"):
        return (
            f"It need not be near 0: under {in_words(aggregation)} longer completions weigh more, so that the advantages of a group "
            "do not cancel. Judge the run by its reward."
        )
    if number_at(run.config, "algorithm.updates_per_batch", 1) > 1:
        return "Small values are expected: the advantages of a group add up to 0."
    in_the_loss = text_at(run.config, "algorithm.kl.placement", "loss") == "loss"
    penalty = number_at(run.config, "algorithm.kl.beta", 0.0) if in_the_loss else 0.0
    rest = (
        f" What remains is the KL penalty, {penalty:g} × the KL aggregated like the loss ({in_words(aggregation)}); the chart of the "
        "KL shows its mean over all tokens."
        if penalty
        else ""
    )
    return (
        f"About 0 is expected: the ratio is 1 and the advantages of a group add up to 0. The gradient is not 0.{rest}"
    )


def in_sight(key: str) -> bool:
    """Whether a person has scrolled to the end of the drawn charts. If not, mark the place, and draw the page again once they do."""
    if st.session_state.get(key):
        return True

    def seen() -> None:
        st.session_state[key] = True

    _place(key=f"place-{key}", on_seen_change=seen)
    return False


def _draw_first_step(run: Run) -> None:
    """Draw what the run is doing; drawn again by itself while the page follows the run."""
    follows = run.status not in TERMINAL and st.session_state.get("live", True)
    st.fragment(_draw_doing, run_every=tick_of_whole_page() if follows else None)(run.id)


def _draw_doing(run_id: int) -> None:
    with guard():
        run = run_now(run_id)
    with st.container(border=True, key="first-step"):
        if run.status in TERMINAL:
            st.markdown(_ENDED)
            return
        st.markdown(f":material/hourglass_empty: **{_doing(run)}**")
        progress = run.progress
        if run.status == "running" and progress.done is not None and progress.total:
            st.progress(min(1.0, progress.done / progress.total))
        st.markdown(
            f"{_SAMPLED if run.by_groups else _ON_PAIRS}; the charts begin when the first one is done.{_takes(run)}"
        )


def _doing(run: Run) -> str:
    """What happens now, in a few words."""
    if run.status == "queued":
        if in_the_way(run.id):
            return "It waits for a worker that can take it"
        place = run.queue_position or 1
        return "It starts as soon as a worker is free" if place == 1 else f"{count(place - 1)} before it in the queue"
    if run.status == "paused":
        return "Paused before its first step was done"
    progress = run.progress
    if progress.phase in (None, STARTING):
        return "A worker has taken the run and starts"
    phase = phase_in_words(progress.phase)
    done = f" {count(progress.done)} of {count(progress.total)}" if progress.done is not None and progress.total else ""
    return f"First step: {phase}{done}" if progress.phase in PHASES else f"Before the first step: {phase}{done}"


def _takes(run: Run) -> str:
    """How long a step is expected to take, if that is known."""
    time = _estimate(run.id)
    if time is None:
        return ""
    basis, _, _ = time.basis.partition(";")  # the rest is about the whole run
    return f" It is expected to take {duration(time.seconds_per_step)} ({plain(basis)})."


@st.cache_data(ttl=60, max_entries=64, show_spinner=False)
def _estimate(run_id: int) -> TimeEstimate | None:
    """Of a step; None for a configuration that an earlier version wrote, and while the backend is away."""
    try:
        return client().preflight(run_now(run_id).config).time
    except (ApiError, Unreachable):
        return None
