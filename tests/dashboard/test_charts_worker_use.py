"""The lanes of workers: what they held, and the share of the time that it took."""

from datetime import UTC, datetime, timedelta

import pytest

from backend.contract.records import Held
from dashboard.charts.worker_use import IDLE, beginning, busy, worker_use_figure

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


def held(since: float, until: float, *, end: str | None = "finished", worker: str = "one", run_id: int = 1) -> Held:
    """From `since` to `until` minutes ago."""
    ago = [NOW - timedelta(minutes=minutes) for minutes in (since, until)]
    values = {"worker": worker, "run_id": run_id, "run_name": "mine", "since": ago[0], "until": ago[1], "end": end}
    return Held.model_validate(values)


@pytest.mark.parametrize(
    ("first", "minutes"),
    [(None, 60), (5, 60), (90, 90), (3 * 1440, 1440)],
    ids=["nothing", "just now", "a while", "days"],
)
def test_lanes_begin_with_the_first_of_the_last_day_and_are_an_hour_long_at_least(
    first: float | None, minutes: float
) -> None:
    known = [] if first is None else [held(first, 0), held(1, 0)]
    assert NOW - beginning(known, NOW) == timedelta(minutes=minutes)


def test_time_counts_once_though_a_sample_was_served_between_two_steps_and_until_now_if_it_goes_on() -> None:
    hour_ago = NOW - timedelta(minutes=60)
    assert busy([held(10, 4), held(50, 45), held(60, 30)], hour_ago, NOW) == pytest.approx(36 / 60)
    began_earlier = [held(120, 50), held(10, 9, end=None)]
    assert busy(began_earlier, hour_ago, NOW) == pytest.approx(20 / 60)


def test_each_worker_has_a_lane_and_each_run_a_bar_on_it() -> None:
    known = [held(90, 30), held(10, 9, end=None, worker="two", run_id=2), held(5, 1, end="lost", run_id=3)]
    data = worker_use_figure(known, NOW).data
    idle, bars = data[data["state"] == IDLE], data[data["state"] != IDLE]
    assert list(idle["worker"]) == ["one", "two"]
    assert set(idle["from"]) == {NOW - timedelta(minutes=90)}
    assert set(idle["to"]) == {NOW}
    assert list(bars["state"]) == ["finished", "running", "lost"]
    assert list(bars["run"]) == ["mine (run 1)", "mine (run 2)", "mine (run 3)"]
    assert list(bars["to"]) == [NOW - timedelta(minutes=30), NOW, NOW - timedelta(minutes=1)]


def test_a_clock_that_was_set_back_makes_no_time_negative_and_no_share_more_than_all() -> None:
    of_tomorrow = [held(-1440, -1400), held(-1440, -1440, end=None), held(30, -1440)]
    assert busy(of_tomorrow, NOW - timedelta(minutes=60), NOW) == pytest.approx(0.5)
    rows = worker_use_figure(of_tomorrow, NOW).data
    assert (rows["to"] >= rows["from"]).all()
