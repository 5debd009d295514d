"""Charts of long runs against a plain computation over every step: means, smoothing, bands, and the axes."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from measured_series import KINDS, LENGTHS, Values, by_step, drawn, record
from serving import Backend

from backend.contract.records import Metrics, Series
from backend.telemetry.stretches import fitting_width, in_stretches, plain, stretch_of
from dashboard.charts.comparison import View, band, comparison_figure
from dashboard.charts.outcome import Group, Member, Stroke, outcome
from dashboard.charts.series import XAxis, positions, smooth, stretches_of
from dashboard.charts.training import single, training_figure
from dashboard.comparison import metrics
from dashboard.comparison.curves import groups_of

PAGE, MANY, SMOOTHING = 240, 90, 0.6
T4 = 2.776445105  # the 97.5 % quantile of Student's t with four degrees of freedom
TRUTH = {"exponential": 0.02, "log-normal": float(np.exp(0.32)), "binary": 0.1}
kinds = pytest.mark.parametrize("kind", KINDS)
lengths = pytest.mark.parametrize("steps", LENGTHS)


def thinned(values: Values, limit: int) -> Series:
    """As the backend answers it."""
    points = [(step, float(value)) for step, value in enumerate(values)]
    if len(points) <= limit:
        return plain(points)
    width = fitting_width(0, len(points) - 1, limit)
    return in_stretches((stretch_of(*point) for point in points), width)


def averaged(values: Values | Sequence[float], series: Series) -> Values:
    """The mean over each stretch of the series."""
    starts = stretches_of(series).start
    return np.array([np.mean(values[start : end + 1]) for start, end in zip(starts, series.step, strict=True)])


def smoothed(values: Values, weight: float) -> Values:
    """Every step, by the textbook."""
    level = mass = 0.0
    out = []
    for value in values:
        level, mass = weight * level + (1 - weight) * value, weight * mass + (1 - weight)
        out.append(level / mass)
    return np.array(out)


@lengths
@kinds
def test_what_is_drawn_are_the_means_of_the_stretches_and_their_extremes_and_smoothed_they_lie_as_high_as_every_step(
    kind: str, steps: int
) -> None:
    truth = drawn(kind, steps)
    series = thinned(truth, PAGE)
    table = training_figure(single("kl"), {"kl": series}, steps=steps, weight=0.0).data
    for column in ("value", "smooth"):
        assert table[column].to_numpy() == pytest.approx(averaged(truth, series), rel=1e-9)
    for name, extreme in (("low", np.min), ("high", np.max)):
        ends = [extreme(truth[row.start : row.step + 1]) for row in table.itertuples()]  # type: ignore[misc]
        assert table[name].tolist() == ends
    for weight in (SMOOTHING, 0.9):
        line = training_figure(single("kl"), {"kl": series}, steps=steps, weight=weight).data["smooth"]
        assert line.mean() == pytest.approx(averaged(smoothed(truth, weight), series).mean(), rel=0.01)


def test_a_smoothed_course_is_that_of_every_step_also_where_it_rises_and_jumps() -> None:
    truth = np.linspace(0.0, 1.0, 4000) ** 2
    truth[1008:1200] = 3.0  # whole stretches: within one, nobody knows where
    for weight in (0.6, 0.95):
        series = thinned(truth, 250)
        line = np.array(smooth(series.value, weight, stretches_of(series).finite))
        assert line == pytest.approx(averaged(smoothed(truth, weight), series), abs=0.005)


@kinds
@pytest.mark.parametrize(
    ("weight", "steps", "groups"),
    [
        *((0.0, steps, 1) for steps in LENGTHS),
        *(pytest.param(SMOOTHING, *cell, marks=pytest.mark.thorough) for cell in ((241, 40), (2_000, 20), (20_000, 5))),
    ],
)
def test_bands_hold_the_truth_as_often_as_the_t_intervals_of_the_true_means(
    kind: str, weight: float, steps: int, groups: int
) -> None:
    held, places = {"band": 0, "true": 0}, 0
    for group in range(groups):
        truths = [drawn(kind, steps, 1000 + 5 * group + seed) for seed in range(5)]
        series = [thinned(truth, MANY) for truth in truths]
        measured = [Metrics(run_id=seed + 1, series={"kl": one}) for seed, one in enumerate(series)]
        members = tuple(Member(seed, True, one, 8) for seed, one in enumerate(measured))
        table = band(Group("g", 0, Stroke(""), members), "kl", View("step", weight, log=False, steps=steps))
        means = np.array([averaged(smoothed(truth, weight), one) for truth, one in zip(truths, series, strict=True)])
        mean, half = means.mean(axis=0), T4 * means.std(axis=0, ddof=1) / np.sqrt(5)
        if weight == 0.0:
            assert table["mean"].to_numpy() == pytest.approx(mean, rel=1e-9)
            assert (table["high"] - table["mean"]).to_numpy() == pytest.approx(half, rel=1e-6, abs=1e-12)
        held["band"] += int(((table["low"] <= TRUTH[kind]) & (TRUTH[kind] <= table["high"])).sum())
        held["true"] += int(((mean - half <= TRUTH[kind]) & (TRUTH[kind] <= mean + half)).sum())
        places += len(table)
    assert places == groups * len(series[0].step)
    assert abs(held["band"] - held["true"]) <= 0.01 * places


def test_a_gap_is_seen_at_any_length_and_a_point_between_two_gaps_is_a_dot() -> None:
    values = [None if step == 500 or 1000 <= step < 1400 else 0.5 for step in range(2000)]
    series = in_stretches((stretch_of(*point) for point in enumerate(values)), 8)
    table = training_figure(single("kl"), {"kl": series}, steps=2000, weight=SMOOTHING).data
    gaps = table[table["value"].isna()]
    assert gaps.loc[gaps["step"] < 1000, "step"].tolist() == [503], "behind the mean of the other seven"
    assert len(gaps) == 1 + 50
    every = in_stretches((stretch_of(step, None if step % 8 == 3 else 0.5) for step in range(2000)), 8)
    table = training_figure(single("kl"), {"kl": every}, steps=2000, weight=SMOOTHING).data
    assert table.loc[table["value"].notna(), "alone"].all()


@pytest.fixture
def compared(backend: Backend, dashboard_of: Callable[[str], None]) -> Callable[..., metrics.Found]:
    """What the comparison fetches of runs, along an axis."""
    dashboard_of(backend.url)

    def fetch(
        run_ids: Sequence[int], *names: str, axis: XAxis = "step", zoom: tuple[float, float] | None = None
    ) -> metrics.Found:
        runs = [backend.client.run(run_id) for run_id in run_ids]
        view = View(axis, 0.0, log=False, steps=0, zoom=zoom, by_run=True)
        return metrics.fetch(runs, names, view)

    return fetch


def test_runs_of_241_and_2000_steps_are_compared_in_the_same_stretches(
    backend: Backend, compared: Callable[..., metrics.Found]
) -> None:
    truth = {steps: drawn("exponential", steps) for steps in (240, 241, 2_000)}
    run_ids = {steps: record(backend, by_step({"kl": values}), seed=steps) for steps, values in truth.items()}
    for short in compared([run_ids[240], run_ids[241]], "kl").values():
        assert short.series["kl"].stretches is None, "short enough as it is"
    found = compared(list(run_ids.values()), "kl")
    for steps, values in truth.items():
        series = found[run_ids[steps]].series["kl"]
        assert stretches_of(series).width == 8
        assert series.value == pytest.approx(averaged(values, series), rel=1e-9)
    runs = [backend.client.run(run_id) for run_id in run_ids.values()]
    (one,) = groups_of(runs, found, ["recipe"])
    table = band(one, "kl", View("step", 0.0, log=False, steps=2_000))
    assert table["n"].tolist() == [3] * 30 + [2], "the last stretch has a step of one run and eight of another"
    whole = metrics.with_whole_ends(found, runs, ["kl", "frac_unscored"], tail=10)
    for steps, values in truth.items():
        ended = outcome("kl", whole[run_ids[steps]].series, 10)
        assert ended.final == pytest.approx(values[-10:].mean(), rel=1e-9)


def test_a_zoom_is_in_the_same_finer_stretches_for_every_run(
    backend: Backend, compared: Callable[..., metrics.Found]
) -> None:
    truth = {steps: drawn("exponential", steps) for steps in (1_300, 2_000)}
    run_ids = {steps: record(backend, by_step({"kl": values})) for steps, values in truth.items()}
    found = compared(list(run_ids.values()), "kl", zoom=(1_003.0, 1_390.0))
    for steps, values in truth.items():
        series = found[run_ids[steps]].series["kl"]
        assert [step for step in series.step if 1_000 <= step < 1_300] == list(range(1_000, 1_300))
        assert series.value == pytest.approx(averaged(values, series), rel=1e-9)
        assert sum(stretches_of(series).finite) == steps, "no step is in two stretches, and none is lost"


@pytest.mark.parametrize("steps", [241, 2_000])
def test_the_axis_of_wall_time_ends_where_the_run_did(
    backend: Backend, compared: Callable[..., metrics.Found], steps: int
) -> None:
    seconds = drawn("log-normal", steps)
    run_id = record(backend, by_step({"step_time": seconds, "kl": drawn("exponential", steps)}))
    paged = backend.client.metrics(run_id, max_points=60)  # as wide as it gets
    for found in (compared([run_id], "kl", axis="time")[run_id], paged):
        places = positions(found, "kl", "time", 8)
        ends = np.cumsum(seconds)[np.asarray(found.series["kl"].step)]
        assert places == pytest.approx(ends, rel=1e-9)


@pytest.mark.parametrize(
    ("steps", "counted"),
    [(241, True), (2_000, True), (2_000, False), pytest.param(20_000, True, marks=pytest.mark.thorough)],
    ids=["241", "2000", "2000 of a run of an earlier version", "20000"],
)
def test_the_axis_of_samples_counts_what_dynamic_sampling_took_out(
    backend: Backend, compared: Callable[..., metrics.Found], steps: int, counted: bool
) -> None:
    random = np.random.default_rng(steps)
    # groups of a step, beside 4 that stay
    gone = np.where(random.random(steps) < 0.4, 0, random.integers(1, 40, steps))
    sampled, times = np.cumsum(8 * (4 + gone)), drawn("log-normal", steps)
    reports = [
        {
            "reward": 0.5,
            "step_time": seconds,
            **({"frac_filtered": more / (4 + more)} if more else {}),
            **({"num_samples": float(total)} if counted else {}),
            **({"eval/pass@1": 0.5} if step % 25 == 0 else {}),
        }
        for step, (more, total, seconds) in enumerate(zip(gone.tolist(), sampled.tolist(), times.tolist(), strict=True))
    ]
    run_id = record(backend, reports, sampling={"prompts_per_step": 4, "group_size": 8})
    found = compared([run_id], "reward", "eval/pass@1", axis="samples")[run_id]
    for name, done in (("reward", 1), ("eval/pass@1", 0)):
        places = positions(found, name, "samples", 32)
        ends = np.concatenate([[0], sampled])[np.asarray(found.series[name].step) + done]
        assert places.tolist() == ends.tolist()
    thin = backend.client.metrics(run_id, max_points=60)
    assert positions(thin, "reward", "time", 32)[-1] == pytest.approx(times.sum(), rel=1e-9)
    if counted:
        places = positions(thin, "reward", "samples", 32)
        assert places.tolist() == sampled[np.asarray(thin.series["reward"].step)].tolist()


def test_the_end_of_a_run_that_began_before_completions_were_counted_is_counted_and_its_beginning_computed() -> None:
    found = Metrics(
        run_id=1,
        series={
            "reward": Series(step=[0, 1, 2, 3], value=[0.5] * 4),
            "frac_filtered": Series(step=[1], value=[0.5]),
            "num_samples": Series(step=[2, 3], value=[64.0, 99.0]),
        },
    )
    assert positions(found, "reward", "samples", 16).tolist() == [16.0, 48.0, 64.0, 99.0]


def test_a_few_thinned_lines_lie_on_their_extremes_and_say_what_they_are_the_mean_of() -> None:
    def line(number: int, series: Series) -> Group:
        metrics = Metrics(run_id=number, series={"kl": series})
        return Group(f"run {number}", number, Stroke("#123456"), (Member(0, True, metrics, 8),))

    lines = [line(n, thinned(drawn("exponential", 2_000, n), 240)) for n in (1, 2)]
    for log in (False, True):
        figure = comparison_figure("kl", lines, View("step", SMOOTHING, log=log, steps=2_000, by_run=True), {1, 2})
        marks = [layer["mark"]["type"] for layer in figure.spec["layer"]]
        assert marks.count("area") == 1
        titles = {tip["title"] for layer in figure.spec["layer"] for tip in layer["encoding"].get("tooltip", ())}
        assert {"mean of steps", "mean", "lowest", "highest", "smoothed"} <= titles
        assert (figure.data["low"] <= figure.data["value"]).all()
    one_by_one = [line(1, plain([(0, 0.1), (1, 0.2)]))]
    view = View("step", 0.0, log=False, steps=2, by_run=True)
    assert "mean of steps" not in str(comparison_figure("kl", one_by_one, view, {1}).spec)
