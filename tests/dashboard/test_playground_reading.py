"""What a person types into the Playground, and the trainer's own functions behind it."""

import math

import numpy as np
import pytest

from backend.contract.advantage import BatchBaseline, BatchStd, GroupZscore, NormalizeThenSum, Softmax
from backend.contract.inspection import GroupScores
from backend.contract.surrogate import Cispo, Clip, PolicyGradient, Sapo, Surrogate, Vespo
from dashboard.algorithm.controls import read_settings
from dashboard.algorithm.estimators import ADVANTAGE
from dashboard.algorithm.surrogates import SURROGATE
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
