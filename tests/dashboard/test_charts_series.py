"""Series as charts draw them: smoothing, gaps, and the four x axes."""

from itertools import pairwise

import pandas as pd
import pytest

from backend.contract.records import Metrics, Series
from dashboard.charts.figure import Figure
from dashboard.charts.series import XAxis, long_table, on_common_steps, positions, smooth, steps_within, touchable


def test_smoothing_starts_at_the_first_value_and_not_below_it_and_is_the_weighted_mean_of_the_past() -> None:
    assert smooth([0.8, 0.8, 0.8], 0.9) == pytest.approx([0.8, 0.8, 0.8])
    assert smooth([1.0, 0.0], 0.5) == pytest.approx([1.0, 1 / 3])
    assert smooth([3.0, 1.0, 2.0], 0.0) == [3.0, 1.0, 2.0]
    assert smooth([0.1] * 99, 0.6) == [0.1] * 99  # to the last digit: the axis would show it


def test_a_value_that_was_not_finite_stays_a_gap_and_moves_nothing() -> None:
    assert smooth([1.0, None, 1.0], 0.9) == [pytest.approx(1.0), None, pytest.approx(1.0)]
    table = long_table({"kl": Series(step=[0, 1], value=[None, 0.0])}, {"kl": "KL"}, 0.5)
    assert table["value"].isna().tolist() == [True, False]


def test_only_the_series_that_a_run_logs_become_rows() -> None:
    series = {"reward": Series(step=[0, 1], value=[0.1, 0.2])}
    table = long_table(series, {"reward": "Reward", "kl": "KL"}, 0.0)
    assert table["metric"].unique().tolist() == ["reward"]
    assert long_table({}, {"kl": "KL"}, 0.0).empty


def test_stacked_phases_have_a_value_at_every_step_even_where_one_was_thinned_out() -> None:
    series = {
        "time/rollout": Series(step=[0, 2], value=[1.0, 3.0]),
        "time/update": Series(step=[0, 1, 2], value=[0.5, 0.5, 0.5]),
    }
    stacked = on_common_steps(long_table(series, {"time/rollout": "rollout", "time/update": "update"}, 0.0))
    rollout = stacked[stacked["metric"] == "time/rollout"]
    assert rollout["value"].tolist() == [1.0, 2.0, 3.0]
    assert set(rollout["label"]) == {"rollout"}


RECORDED = Metrics(
    run_id=1,
    series={
        "reward": Series(step=[0, 1, 2], value=[0.1, 0.2, 0.3]),
        "eval/pass@1": Series(step=[0, 2], value=[0.5, 0.6]),
        "num_tokens": Series(step=[0, 1, 2], value=[100.0, 250.0, 300.0]),
        "step_time": Series(step=[0, 1, 2], value=[2.0, 1.0, 4.0]),
    },
)


@pytest.mark.parametrize(
    ("axis", "of_steps", "of_evaluations"),
    [("samples", [8, 16, 24], [0, 16]), ("tokens", [100, 250, 300], [0, 250]), ("time", [2, 3, 7], [0, 3])],
)
def test_a_step_lies_where_it_was_done_and_an_evaluation_where_the_step_before_it_was(
    axis: XAxis, of_steps: list[int], of_evaluations: list[int]
) -> None:
    assert positions(RECORDED, "reward", axis, 8).tolist() == of_steps
    assert positions(RECORDED, "eval/pass@1", axis, 8).tolist() == of_evaluations


def test_wall_time_of_a_thinned_series_stands_for_the_steps_left_out_and_without_counts_there_are_no_tokens() -> None:
    thinned = {"reward": Series(step=[9], value=[0.3]), "step_time": Series(step=[0, 4, 9], value=[2.0, 2.0, 2.0])}
    metrics = Metrics(run_id=1, series=thinned)
    assert positions(metrics, "reward", "time", 8).tolist() == [20.0]
    assert str(positions(metrics, "reward", "tokens", 8).tolist()) == "[nan]"


@pytest.mark.parametrize("axis", ["tokens", "time"])
def test_a_run_that_has_only_evaluated_so_far_has_no_steps_within_a_zoom_on_tokens_or_time(axis: XAxis) -> None:
    metrics = Metrics(run_id=1, series={"eval/reward": Series(step=[0], value=[0.3])})
    assert steps_within(metrics, axis, (100.0, 200.0), 8) is None
    assert steps_within(metrics, "step", (0.0, 1.0), 8) == (0, 0)


def two_lines(points: int) -> pd.DataFrame:
    whole, short = (Series(step=list(range(count)), value=[0.5] * count) for count in (points, 3))
    return long_table({"reward": whole, "eval/reward": short}, {"reward": "a", "eval/reward": "b"}, 0.0)


def test_a_pointer_finds_every_point_of_a_short_line_and_of_long_ones_some_points_evenly_and_both_ends() -> None:
    assert touchable(two_lines(40), 60)["touch"].all()
    table = touchable(two_lines(1000), 100)
    found = table[table["touch"]]
    assert len(found) <= 104
    steps = found.loc[found["label"] == "a", "step"].tolist()
    assert (steps[0], steps[-1]) == (0, 999)
    assert max(after - before for before, after in pairwise(steps)) <= 11
    assert found.loc[found["label"] == "b", "step"].tolist() == [0, 2]


def test_texts_that_travel_once_are_the_same_texts() -> None:
    table = two_lines(5)
    sent = Figure({}, table).sent.to_pandas()
    assert {name for name, kind in sent.dtypes.items() if kind == "category"} == {"metric", "label"}
    assert sent.astype({"metric": "str", "label": "str"}).equals(table)
