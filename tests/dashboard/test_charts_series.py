"""Series as charts draw them: smoothing, gaps, and the four x axes."""

from itertools import pairwise

import pytest

from backend.contract.records import Metrics, Series
from dashboard.charts.figure import Figure
from dashboard.charts.series import XAxis, long_table, on_common_steps, positions, smooth, steps_within, touchable


def test_smoothing_starts_at_the_first_value_and_not_below_it() -> None:
    assert smooth([0.8, 0.8, 0.8], 0.9) == pytest.approx([0.8, 0.8, 0.8])


def test_smoothing_is_the_weighted_mean_of_the_past() -> None:
    assert smooth([1.0, 0.0], 0.5) == pytest.approx([1.0, 1 / 3])


def test_weight_zero_leaves_the_values_as_they_are() -> None:
    assert smooth([3.0, 1.0, 2.0], 0.0) == [3.0, 1.0, 2.0]


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


def recorded() -> Metrics:
    return Metrics(
        run_id=1,
        series={
            "reward": Series(step=[0, 1, 2], value=[0.1, 0.2, 0.3]),
            "eval/pass@1": Series(step=[0, 2], value=[0.5, 0.6]),
            "num_tokens": Series(step=[0, 1, 2], value=[100.0, 250.0, 300.0]),
            "step_time": Series(step=[0, 1, 2], value=[2.0, 1.0, 4.0]),
        },
    )


def test_samples_count_the_completions_of_the_steps_done() -> None:
    assert positions(recorded(), "reward", "samples", 8).tolist() == [8, 16, 24]
    assert positions(recorded(), "eval/pass@1", "samples", 8).tolist() == [0, 16]


def test_tokens_are_those_processed_when_the_step_was_done() -> None:
    assert positions(recorded(), "reward", "tokens", 8).tolist() == [100, 250, 300]
    assert positions(recorded(), "eval/pass@1", "tokens", 8).tolist() == [0, 250]


def test_wall_time_is_the_sum_of_the_step_times() -> None:
    assert positions(recorded(), "reward", "time", 8).tolist() == [2, 3, 7]
    assert positions(recorded(), "eval/pass@1", "time", 8).tolist() == [0, 3]


def test_wall_time_of_a_thinned_series_stands_for_the_steps_left_out() -> None:
    metrics = Metrics(
        run_id=1,
        series={"reward": Series(step=[9], value=[0.3]), "step_time": Series(step=[0, 4, 9], value=[2.0, 2.0, 2.0])},
    )
    assert positions(metrics, "reward", "time", 8).tolist() == [20.0]


def test_a_run_without_token_counts_has_no_place_on_the_token_axis() -> None:
    metrics = Metrics(run_id=1, series={"reward": Series(step=[0], value=[0.3])})
    assert str(positions(metrics, "reward", "tokens", 8).tolist()) == "[nan]"


@pytest.mark.parametrize("axis", ["tokens", "time"])
def test_a_run_that_has_only_evaluated_so_far_has_no_steps_within_a_zoom_on_tokens_or_time(axis: XAxis) -> None:
    metrics = Metrics(run_id=1, series={"eval/reward": Series(step=[0], value=[0.3])})
    assert steps_within(metrics, axis, (100.0, 200.0), 8) is None
    assert steps_within(metrics, "step", (0.0, 1.0), 8) == (0, 0)


def _two_lines(points: int) -> dict[str, Series]:
    whole, short = (Series(step=list(range(count)), value=[0.5] * count) for count in (points, 3))
    return {"reward": whole, "eval/reward": short}


def test_a_pointer_finds_every_point_of_a_short_line() -> None:
    table = touchable(long_table(_two_lines(40), {"reward": "a", "eval/reward": "b"}, 0.0), 60)
    assert table["touch"].all()


def test_of_long_lines_a_pointer_finds_some_points_evenly_and_both_ends() -> None:
    table = touchable(long_table(_two_lines(1000), {"reward": "a", "eval/reward": "b"}, 0.0), 100)
    found = table[table["touch"]]
    assert len(found) <= 104
    steps = found.loc[found["label"] == "a", "step"].tolist()
    assert (steps[0], steps[-1]) == (0, 999)
    assert max(after - before for before, after in pairwise(steps)) <= 11
    assert found.loc[found["label"] == "b", "step"].tolist() == [0, 2]


def test_texts_that_travel_once_are_the_same_texts() -> None:
    table = long_table(_two_lines(5), {"reward": "a", "eval/reward": "b"}, 0.0)
    sent = Figure({}, table).sent.to_pandas()
    assert {name for name, kind in sent.dtypes.items() if kind == "category"} == {"metric", "label"}
    assert sent.astype({"metric": "str", "label": "str"}).equals(table)
