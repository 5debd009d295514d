"""Runs taken together over their seeds: bands, gains and what is drawn, against numbers computed by hand."""

import math
from collections.abc import Mapping, Sequence

import pytest

from backend.contract.records import Metrics, Series
from dashboard.charts.comparison import View, band, comparison_figure
from dashboard.charts.outcome import SUCCESS, Group, Member, Outcome, best, by_gain, final, gain, gain_figure, outcome
from dashboard.charts.palette import GROUPS, NEUTRAL
from dashboard.charts.series import XAxis
from dashboard.comparison.curves import group_stroke

T2 = 4.30265273  # two degrees of freedom
Values = Sequence[float | None]


def member(seed: int, *, finished: bool = True, every: int = 1, **named: Values) -> Member:
    series = {
        name.replace("pass_at_1", SUCCESS): Series(step=[every * at for at in range(len(values))], value=list(values))
        for name, values in named.items()
    }
    return Member(seed, finished, Metrics(run_id=seed + 1, series=series), completions_per_step=8)


def group(*members: Member, label: str = "grpo", place: int = 0) -> Group:
    return Group(label, place, group_stroke(place), members)


def view(
    *, axis: XAxis = "step", weight: float = 0.0, steps: int = 10, zoom: tuple[float, float] | None = None
) -> View:
    return View(axis, weight, log=False, steps=steps, zoom=zoom)


def rows(found: Group, name: str = "reward", seen: View | None = None) -> Mapping[int, tuple[float, ...]]:
    table = band(found, name, seen or view())
    return {int(row.step): (row.mean, row.low, row.high, row.n) for row in table.itertuples()}  # type: ignore[arg-type,misc]


def test_a_band_is_the_t_interval_of_the_runs_at_each_step() -> None:
    found = rows(group(member(0, reward=[0.1, 0.4]), member(1, reward=[0.2, 0.6]), member(2, reward=[0.3, 0.8])))
    half = T2 * 0.1 / math.sqrt(3)
    assert found[0] == pytest.approx((0.2, 0.2 - half, 0.2 + half, 3))
    assert found[1] == pytest.approx((0.6, 0.6 - 2 * half, 0.6 + 2 * half, 3))


def test_where_one_run_has_no_value_the_others_make_the_band_and_a_lone_value_is_left_out() -> None:
    found = rows(
        group(member(0, reward=[0.1, None, 0.5]), member(1, reward=[0.3, 0.4, None]), member(2, reward=[0.2, 0.6]))
    )
    assert {step: n for step, (_, _, _, n) in found.items()} == {0: 3, 1: 2}
    assert found[1][0] == pytest.approx(0.5)
    assert found[1][2] - found[1][0] == pytest.approx(12.7062 * math.sqrt(0.02) / math.sqrt(2), abs=1e-4)
    assert rows(group(member(0, kl=[0.1]))) == {}, "nobody has logged it"


def test_runs_are_smoothed_one_by_one_and_then_averaged() -> None:
    found = rows(group(member(0, reward=[0.0, 1.0]), member(1, reward=[0.0, 0.0])), seen=view(weight=0.5))
    assert found[1][0] == pytest.approx((2 / 3) / 2)  # 0.5 · 1 / 0.75, and 0


def test_within_a_zoom_only_what_is_in_sight_is_averaged_and_the_smoothing_remembers_what_came_before() -> None:
    pair = group(member(0, reward=[0.0, 0.0, 0.0, 1.0]), member(1, reward=[0.0, 0.0, 0.0, 1.0]))
    found = rows(pair, seen=view(weight=0.5, zoom=(2.0, 3.0)))
    assert {step: mean for step, (mean, _, _, _) in found.items()} == {1: 0.0, 2: 0.0, 3: pytest.approx(0.5 / 0.9375)}


def test_a_gain_is_paired_within_each_finished_run() -> None:
    found = gain(
        group(
            member(0, every=25, pass_at_1=[0.50, 0.60, 0.80]),
            member(1, every=25, pass_at_1=[0.52, 0.70, 0.92]),
            member(2, every=25, pass_at_1=[0.48, 0.98], finished=False),
            member(3, every=25, pass_at_1=[0.48]),
            member(4, every=25, pass_at_1=[0.51, None, 0.86]),
        )
    )
    assert found is not None
    assert (found.n, found.mean) == (3, pytest.approx((0.30 + 0.40 + 0.35) / 3))
    assert found.std == pytest.approx(0.05)
    assert found.low == pytest.approx(0.35 - T2 * 0.05 / math.sqrt(3))
    assert gain(group(member(0, reward=[0.5, 0.9]))) is None


def test_an_outcome_knows_which_way_is_better_and_passes_over_what_was_not_finite() -> None:
    values = Series(step=[0, 1, 2], value=[0.2, 0.9, 0.4])
    assert outcome("reward", {"reward": values}, 2) == Outcome(pytest.approx(0.65), 0.9, 1)
    assert outcome("frac_unscored", {"frac_unscored": values}, 2).best == 0.2
    assert outcome("kl", {"kl": values}, 2).best is None
    assert outcome(SUCCESS, {SUCCESS: values}, 10).final == 0.4, "of an evaluation the last value alone"
    assert outcome("reward", {"reward": Series(step=[0, 1], value=[0.5, None])}, 10).final == 0.5
    for nothing in ({"reward": Series(step=[0], value=[None])}, {}):
        assert outcome("reward", nothing, 10) == Outcome(None, None, None)


def test_what_a_group_came_to_is_by_seed_and_of_finished_runs() -> None:
    found = group(
        member(0, pass_at_1=[0.5, 0.9, 0.8]),
        member(1, pass_at_1=[0.5, 0.7]),
        member(1, pass_at_1=[0.5, 0.9]),
        member(2, finished=False, pass_at_1=[1.0]),
    )
    assert final(found, SUCCESS, 3) == {0: 0.8, 1: pytest.approx(0.8)}
    assert final(group(member(0, reward=[0.0, 0.4, 0.6])), "reward", 2) == {0: 0.5}, "not of a single step"
    assert best(found, SUCCESS) == {0: 0.9, 1: pytest.approx(0.8)}
    assert best(group(member(0, entropy=[0.5])), "entropy") == {}, "neither more nor less of it is better"


def test_a_seed_that_ran_three_times_is_one_draw_of_luck_in_gains_and_bands() -> None:
    once = group(member(0, pass_at_1=[0.5, 0.52]), member(1, pass_at_1=[0.5, 0.60]))
    thrice = group(*once.members * 3)
    assert gain(thrice) == gain(once) is not None
    assert rows(thrice, SUCCESS) == {step: pytest.approx(row) for step, row in rows(once, SUCCESS).items()}


def test_runs_of_a_lone_seed_have_a_line_and_no_band() -> None:
    found = rows(group(member(0, reward=[0.2, 0.4]), member(0, reward=[0.4])))
    assert {step: (mean, n) for step, (mean, _, _, n) in found.items()} == {0: (pytest.approx(0.3), 1), 1: (0.4, 1)}
    assert all(math.isnan(low) for _, low, _, _ in found.values())


def test_the_largest_gain_comes_first_and_a_group_without_one_last() -> None:
    small = group(member(0, pass_at_1=[0.5, 0.6]), label="small")
    none = group(member(0, pass_at_1=[0.5]), label="none", place=1)
    large = group(member(0, pass_at_1=[0.5, 0.9]), label="large", place=2)
    assert [one.label for one in by_gain([small, none, large])] == ["large", "small", "none"]
    figure = gain_figure([small, none, large], {2})
    assert figure.data["label"].tolist() == ["large", "small"]
    assert figure.data["mean"].tolist() == pytest.approx([0.4, 0.1])


def test_sixteen_groups_are_told_apart_by_colour_and_dashes() -> None:
    assert len({group_stroke(place) for place in range(16)}) == 16
    assert len(set(GROUPS)) == 8


def test_only_groups_in_front_have_a_band_and_the_rest_are_grey() -> None:
    groups = [
        group(member(0, reward=[0.1, 0.2]), member(1, reward=[0.2, 0.3]), label=label, place=place)
        for place, label in enumerate(("one", "two"))
    ]
    figure = comparison_figure("reward", groups, view(steps=2), {1})
    banded = figure.data.dropna(subset=["lower"])
    assert set(banded["label"]) == {"two"}
    assert NEUTRAL in str(figure.spec)
    assert GROUPS[1] in str(figure.spec)
    assert GROUPS[0] not in str(figure.spec)
    assert figure.data["low"].notna().all(), "the tooltip tells the interval of all"


def test_a_wide_band_is_cut_and_told_in_full_and_of_two_seeds_it_is_their_range() -> None:
    def end(*lasts: float) -> Mapping[str, float]:
        runs = group(*(member(seed, pass_at_1=[0.5, last]) for seed, last in enumerate(lasts)))
        return comparison_figure(SUCCESS, [runs], view(steps=2), {0}).data.iloc[-1]

    wide = end(0.5, 0.75, 1.0)
    assert wide["high"] == pytest.approx(0.75 + T2 * 0.25 / math.sqrt(3))
    assert (wide["lower"], wide["upper"]) == pytest.approx((0.5 - 0.5 * 0.25, 0.75 + 0.5 * 0.25))
    pair = end(0.7, 0.8)
    assert (pair["lower"], pair["upper"]) == pytest.approx((0.7, 0.8))
    assert pair["high"] == pytest.approx(0.75 + 12.7062 * 0.05, abs=1e-3)


def test_runs_of_different_speed_stay_together_along_wall_time() -> None:
    quick = member(0, reward=[0.1] * 10, step_time=[1.0] * 10)
    slow = member(1, reward=[0.3] * 10, step_time=[2.0] * 10)
    found = rows(group(quick, slow), seen=view(axis="time", zoom=(6.0, 9.0)))  # step s ends after 1.5 · (s + 1) seconds
    assert {step: n for step, (_, _, _, n) in found.items()} == {2: 2, 3: 2, 4: 2, 5: 2, 6: 2}


def test_along_samples_the_points_lie_at_the_completions_made() -> None:
    table = band(group(member(0, reward=[0.1, 0.2])), "reward", view(axis="samples"))
    assert table["x"].tolist() == [8.0, 16.0]
