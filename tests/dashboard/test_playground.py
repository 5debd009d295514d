"""The Playground without its page: what a person types, the trainer's own functions behind it, and its figures."""

import json
import math
import re

import numpy as np
import pandas as pd
import pytest

from backend.contract.advantage import BatchBaseline, BatchStd, GroupZscore, NormalizeThenSum, Softmax
from backend.contract.inspection import GroupScores
from backend.contract.surrogate import Cispo, Clip, PolicyGradient, Sapo, Surrogate, Vespo
from dashboard.algorithm.controls import read_settings
from dashboard.algorithm.estimators import ADVANTAGE
from dashboard.algorithm.surrogates import SURROGATE
from dashboard.charts.figure import Figure
from dashboard.charts.palette import DISCOURAGED, REINFORCED, UNSCORED
from dashboard.charts.playground import Curve, bars_figure, curves_figure
from dashboard.playground.advantages import READINGS, group_in_a_line, short, spread
from dashboard.playground.kl import kl_curve
from dashboard.playground.rewards import Typed, fitting, played, read_rewards, read_rows, written
from dashboard.playground.surrogate import objective, pull, ratio_in_a_line


def advantages(chosen: GroupZscore | Softmax | BatchStd | BatchBaseline, *rows: list[float]) -> list[float | None]:
    first, *others = rows
    return [completion.advantage for completion in played(chosen, Typed([first], batch=others)).completions]


def readings(rewards: list[float]) -> list[GroupScores]:
    return [played(chosen, Typed([rewards])) for chosen, _, _ in READINGS]


def test_rewards_are_read_however_they_are_separated_and_a_dash_is_unscored() -> None:
    for text in ("1, 0, 0.5", "1 0 .5", " 1,0,  5e-1, "):
        assert read_rewards(text) == [1, 0, 0.5]
    for word in ("nan", "NaN", "-", "–", "−"):
        scored, unscored, negative = read_rewards(f"1, {word}, −2")
        assert (scored, negative) == (1, -2)
        assert math.isnan(unscored)
        assert written([scored, unscored, negative]) == "1, -, -2"
    assert read_rows("1 0; 0 0 1;") == [[1, 0], [0, 0, 1]]
    assert read_rows(" ") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1, x", "“x” is not a number"),
        ("", "at least one"),
        ("1, inf", "too large"),
        ("0 " * 1025, "1025 numbers are too many"),
    ],
)
def test_a_typo_is_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_rewards(text)


def test_settings_are_refused_in_the_words_of_the_contract() -> None:
    assert read_settings(SURROGATE, {"kind": "clip", "epsilon_low": "0.1", "delta": ""}) == Clip(epsilon_low=0.1)
    with pytest.raises(ValueError, match=r"delta \(1.1\) must be above 1 \+ epsilon_high"):
        read_settings(SURROGATE, {"kind": "clip", "delta": "1.1"})
    with pytest.raises(ValueError, match=r"^eps: type a number"):
        read_settings(ADVANTAGE, {"kind": "group_zscore", "eps": "x"})


def test_the_three_readings_of_the_rewards_come_out_and_an_uneven_group_shows_both_ends() -> None:
    population, sample, softmax = readings([1.0, 1, 1, 1, 0, 0, 0, 0])
    assert [short(one.reward_std) for one in (population, sample)] == ["0.5", "0.53"]
    assert [spread(one) for one in (population, sample, softmax)] == ["±1.0", "±0.94", "0.183 / 0.067"]
    assert spread(readings([1.0, 0, 0, 0])[0]) == "+1.73 / −0.58"
    assert spread(readings([1.0, 1])[0]) == "0"
    assert spread(readings([1.0, 1])[2]) == "0.500"


def test_the_other_groups_count_where_the_estimator_looks_at_the_batch() -> None:
    assert advantages(BatchBaseline(), [1, 1], [0, 0]) == [0.5, 0.5]
    assert advantages(BatchBaseline(), [1, 1], [0, 0, 0, 0]) == pytest.approx([2 / 3] * 2)
    over_batch = np.std([1, 0, 5, 3, 1], ddof=1)
    assert advantages(BatchStd(), [1, 0], [5, 3, 1]) == pytest.approx(
        [0.5 / (over_batch + 1e-4), -0.5 / (over_batch + 1e-4)]
    )


def test_reward_functions_are_normalised_one_by_one_and_those_of_other_lengths_refused_with_the_numbers() -> None:
    group = played(NormalizeThenSum(), fitting([[1, 0, 0], [0, 0, 1]], [1.0, 1.0]))
    first, second, third = (completion.advantage or 0.0 for completion in group.completions)
    assert first == pytest.approx(third)
    assert second < 0 < first
    assert [completion.reward for completion in group.completions] == [1, 0, 1]

    with pytest.raises(ValueError, match="they have 2, 3"):
        fitting([[1, 0], [1, 0, 1]], [1, 1])
    with pytest.raises(ValueError, match="2 reward functions need 2 weights, not 1"):
        fitting([[1, 0], [1, 0]], [1])
    for weight in (1001, math.nan):
        with pytest.raises(ValueError, match="weights up to ±1000"):
            fitting([[1, 0]], [weight])


def test_an_unscored_completion_has_no_reward_and_no_advantage_but_zero() -> None:
    group = played(GroupZscore(), Typed([[1, math.nan, 0]]))
    assert [completion.reward for completion in group.completions] == [1, None, 0]
    assert group.completions[1].advantage == 0
    assert group.scored == 2
    assert group_in_a_line(group) == "3 completions: 1 × 1, 1 × 0, 1 unscored"


def test_a_ratio_is_clipped_which_cuts_the_pull_on_one_side_for_each_sign() -> None:
    for new, line in ((0.9, "1.8** → clipped to **1.2"), (0.2, "0.4** → clipped to **0.8")):
        assert line in ratio_in_a_line(Clip(), new, 0.5)
    for advantage, new, value, slope in (
        (1, 0.9, 1.2, 0),
        (-1, 0.9, -1.8, -1.8),
        (1, 0.2, 0.4, 0.4),
        (-1, 0.2, -0.8, 0),
    ):
        assert objective(Clip(), advantage, new, 0.5).at == pytest.approx(value)
        assert pull(Clip(), advantage, new, 0.5).at == pytest.approx(slope, abs=1e-6)


@pytest.mark.parametrize("surrogate", [Clip(), Cispo(), Sapo(), Vespo(), PolicyGradient()], ids=lambda one: one.kind)
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_on_policy_every_surrogate_pulls_with_the_advantage(surrogate: Surrogate, advantage: float) -> None:
    assert pull(surrogate, advantage, 0.5, 0.5).at == pytest.approx(advantage, abs=1e-6)


def test_cispo_pulls_no_harder_beyond_its_cap_and_curves_end_where_a_probability_would_exceed_one() -> None:
    assert pull(Cispo(cap=1.5), 1.0, 0.9, 0.5).at == pytest.approx(1.5)
    assert pull(Cispo(cap=5), 1.0, 0.9, 0.5).at == pytest.approx(1.8)
    assert objective(PolicyGradient(), 1.0, 0.9, 0.5).x[-1] == pytest.approx(2)
    assert np.isfinite(pull(Vespo(), 1.0, 1.0, 0.5).y).all()


def test_the_kl_estimators_at_a_point() -> None:
    x = math.log(1.8)
    assert kl_curve("k1", 0.9, 0.5).at == pytest.approx(x)
    assert kl_curve("k2", 0.9, 0.5).at == pytest.approx(x * x / 2)
    assert kl_curve("k3", 0.9, 0.5).at == pytest.approx(math.exp(-x) + x - 1)


def curves(new: float, *, band: tuple[float, float] | None = (0.8, 1.2)) -> Figure:
    drawn = [
        Curve(name, "#123456", *objective(Clip(), advantage, new, 0.5))
        for name, advantage in (("best", 1.0), ("worst", -1.0))
    ]
    return curves_figure(drawn, new / 0.5, x_title="ratio", y_title="objective", equal=1.0, band=band)


def marks(figure: Figure, kind: str) -> pd.DataFrame:
    return figure.data[figure.data["kind"] == kind]


def test_each_bar_carries_its_signed_number_in_the_colour_of_its_sign_and_many_leave_it_to_the_tooltip() -> None:
    data = bars_figure([1.0, 0.0, None], [0.9354, -0.9354, 0.0], "completion").data
    assert data["label"].tolist() == ["+0.935", "−0.935", "unscored"]
    assert data["colour"].tolist() == [REINFORCED, DISCOURAGED, UNSCORED]
    assert data["place"].tolist() == ["1|1", "2|0", "3|–"]

    assert set(bars_figure([1.0] * 17, [0.5] * 17, "completion").data["label"]) == {""}


def test_every_field_that_is_drawn_is_in_the_data_and_a_moved_point_rebuilds_nothing() -> None:
    for figure in (curves(0.9), bars_figure([1.0], [0.5], "completion")):
        drawn = re.findall(r'"field": "([^"]*)"', json.dumps(figure.spec))
        assert drawn
        assert set(drawn) <= set(figure.data.columns)

    assert curves(0.9).spec == curves(0.2, band=None).spec
    assert bars_figure([1.0], [0.5], "completion").spec == bars_figure([0.0, 1.0], [-1.0, 1.0], "completion").spec
    assert "datasets" not in curves(0.9).spec


def test_a_point_lies_on_its_curves_with_its_signed_numbers_which_are_kept_apart_where_curves_meet() -> None:
    points = marks(curves(0.9), "point")
    assert points["x"].tolist() == [1.8, 1.8]
    assert points["y"].tolist() == [1.2, -1.8]
    assert marks(curves(0.9), "number")["text"].tolist() == ["+1.20", "−1.80"]
    assert marks(curves(0.9), "number")["where"].tolist() == ["left above", "left below"]
    assert marks(curves(0.2), "number")["where"].tolist() == ["right below", "right above"]

    x = np.array([0.0, 1.0])
    both = [Curve("k1", "#111111", x, x, 0.5, strong=False), Curve("k2", "#222222", x, x**2, 0.25)]
    assert marks(curves_figure(both, 0.5, x_title="x", y_title="y", equal=0.0), "number")["label"].tolist() == ["k2"]

    meeting = [Curve("best", "#111111", x, 1 - x, 0.5), Curve("worst", "#222222", x, x - 1, -0.5)]
    ends = marks(curves_figure(meeting, 0.5, x_title="x", y_title="y", equal=0.0), "end")["y"].tolist()
    assert abs(ends[0] - ends[1]) > 0.1
