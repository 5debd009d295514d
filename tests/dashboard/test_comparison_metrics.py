"""The ends of the series by which runs are judged."""

from collections.abc import Iterable
from datetime import UTC, datetime

import pytest

from backend.contract.records import Metrics, Page, Progress, Run, Series, Status
from backend.telemetry.stretches import in_stretches, stretch_of
from dashboard.charts.outcome import outcome
from dashboard.comparison import metrics

LONG = 1500  # steps


class Recorded:
    """Answers as the backend does: the value of a step is its number. Counts what it is asked."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.asked = 0

    def compare_metrics(
        self, *, runs: Iterable[int], names: Iterable[str], from_step: int, to_step: int, width: int
    ) -> Page[Metrics]:
        assert width == 1
        assert to_step - from_step < 64, "not more than a stretch"
        self.asked += 1
        steps = list(range(from_step, min(to_step + 1, self.steps)))
        series = Series(step=steps, value=[float(step) for step in steps])
        return Page(items=[Metrics(run_id=run_id, series=dict.fromkeys(names, series)) for run_id in runs])


def run(status: Status, steps: int) -> Run:
    return Run(
        id=1,
        name="x",
        kind="grpo",
        status=status,
        config={},
        progress=Progress(step=steps, total_steps=2 * LONG),
        attempt=1,
        failures=0,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def thinned(steps: int, *names: str, every: int = 1) -> metrics.Found:
    """Each step, or each n-th one, in stretches of 64."""
    series = in_stretches((stretch_of(step, float(step)) for step in range(0, steps, every)), 64)
    return {1: Metrics(run_id=1, series=dict.fromkeys(names, series))}


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    made = Recorded(LONG)
    metrics._ask_once.clear()
    monkeypatch.setattr(metrics, "client", lambda: made)
    return made


@pytest.mark.parametrize("lines", [1, 8, 20, 200])
def test_250_steps_are_drawn_one_by_one_however_many_lines_there_are(lines: int) -> None:
    assert {metrics.width_of(steps, metrics.points_of(lines)) for steps in range(1, 251)} == {1}


@pytest.mark.parametrize("status", ["running", "paused", "finished"])
@pytest.mark.parametrize("name", ["reward", "step_time"])
def test_the_final_of_a_long_run_is_the_mean_of_its_last_values_wherever_it_is(
    recorded: Recorded, status: Status, name: str
) -> None:
    found = metrics.with_whole_ends(thinned(LONG, name), [run(status, LONG)], [name], tail=10)
    assert outcome(name, found[1].series, 10).final == LONG - 5.5
    assert recorded.asked == 1


def test_the_final_of_a_run_that_goes_on_follows_it(recorded: Recorded) -> None:
    for steps in (LONG, LONG + 7):
        recorded.steps = steps
        # the run's row may be a step behind what it has logged
        found = metrics.with_whole_ends(thinned(steps, "reward"), [run("running", steps - 1)], ["reward"], tail=10)
        assert outcome("reward", found[1].series, 10).final == steps - 5.5


def test_the_stretch_that_the_end_is_a_part_of_keeps_the_rest_and_its_extremes(recorded: Recorded) -> None:
    found = metrics.with_whole_ends(thinned(LONG, "reward"), [run("running", LONG)], ["reward"], tail=10)
    series = found[1].series["reward"]
    assert series.stretches is not None
    assert series.step[-12:] == [1471, 1489, *range(1490, LONG)]
    assert series.value[-11] == pytest.approx(sum(range(1472, 1490)) / 18)
    assert sum(series.stretches.finite) == LONG
    assert outcome("reward", found[1].series, 10).best == LONG - 1
    assert outcome("frac_unscored", {"frac_unscored": thinned(LONG, "x")[1].series["x"]}, 10).best == 0.0


def test_the_end_of_what_is_logged_now_and_then_reaches_further_back(recorded: Recorded) -> None:
    series = thinned(LONG, "frac_filtered", every=7)[1].series["frac_filtered"]
    assert metrics._begins(series, 10) == 1408
    assert metrics._begins(series, 1000) == 0


def test_nothing_is_asked_where_all_of_the_end_is_there(recorded: Recorded) -> None:
    evaluations = {1: Metrics(run_id=1, series={"eval/pass@1": Series(step=[0, 900], value=[0.1, 0.9])})}
    assert metrics.with_whole_ends(evaluations, [run("running", LONG)], ["eval/pass@1"], tail=10) == evaluations
    steps = list(range(40))
    short = {1: Metrics(run_id=1, series={"reward": Series(step=steps, value=[0.0] * 40)})}
    assert metrics.with_whole_ends(short, [run("running", 40)], ["reward", "kl"], tail=10) == short
    assert recorded.asked == 0
