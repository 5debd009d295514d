"""What a sample says before a launch: what counts as right, the success rate, the dead groups to expect, in numbers and words."""

from math import comb

import pytest
import recorded
from answers import stored

from backend.contract.base import Json
from backend.contract.groups import Group, RewardScore
from backend.contract.grpo import GrpoConfig
from dashboard.before_launch import results
from dashboard.charts.dead_forecast import Share, dead_forecast_figure, in_percent
from dashboard.forecast import Forecast, forecast, is_right

CONFIG: dict[str, Json] = GrpoConfig().model_dump(mode="json")
JUDGED = {**CONFIG, "rewards": {"functions": [{"kind": "judge", "name": "taste", "weight": 2.0}]}}
RIGHT, WRONG, ILL_FORMED = 1.0, 0.1, 0.0


def group(*rewards: float | None) -> Group:
    return stored(recorded.group_of(0, rewards))


def expected(groups: list[Group], own: int = 8, config: dict[str, Json] = CONFIG) -> Forecast:
    found = forecast(groups, config, own)
    assert found is not None
    return found


def share_at(size: int, found: Forecast) -> Share:
    share = found.at(size)
    assert share is not None
    return share


def test_right_means_that_every_correctness_reward_is_1_whatever_the_whole_reward_is() -> None:
    right, ill_formed, wrong, unscored = group(1.0, 0.9, 0.1, None).completions
    assert [is_right(one, CONFIG) for one in (right, ill_formed, wrong, unscored)] == [True, True, False, None]


def test_without_such_a_reward_the_highest_one_counts_or_the_one_that_a_person_names() -> None:
    completion = group(1.0).completions[0].model_copy(update={"reward": 1.5})
    assert not is_right(completion, JUDGED)
    assert is_right(completion.model_copy(update={"reward": 2.0}), JUDGED)
    assert is_right(completion, JUDGED, threshold=1.5)


def test_the_forecast_is_the_mean_over_prompts_of_the_hypergeometric_share() -> None:
    groups = [group(*[RIGHT] * 12, *[WRONG] * 4), group(*[RIGHT] * 2, *[WRONG] * 14)]
    found = expected(groups)
    assert found.rates_P == [12 / 16, 2 / 16]
    assert found.rate == pytest.approx(7 / 16)
    assert [share.group_size for share in found.shares] == list(range(2, 17))
    for share in found.shares:
        G = share.group_size
        of = comb(16, G)
        by_hand = ((comb(12, G) + comb(4, G)) / of + (comb(2, G) + comb(14, G)) / of) / 2
        assert share.right_or_wrong == pytest.approx(by_hand, rel=1e-14)
        assert share.dead == pytest.approx(by_hand, rel=1e-14)
        assert share.at_mean_rate == pytest.approx((7 / 16) ** G + (9 / 16) ** G)
    assert share_at(8, found).at_mean_rate < share_at(8, found).right_or_wrong


def test_another_reward_that_tells_wrong_ones_apart_by_more_than_rounding_leaves_fewer_groups_without_a_difference() -> (
    None
):
    share = share_at(8, expected([group(*[WRONG] * 8, *[ILL_FORMED] * 8)]))
    assert (share.right_or_wrong, share.dead) == (1.0, pytest.approx(2 / comb(16, 8)))
    assert expected([group(*[0.3, 0.1 + 0.2] * 8)]).shares[0].dead == 1


def test_an_estimator_that_compares_by_function_is_forecast_by_function() -> None:
    config = {**CONFIG, "algorithm": {"advantage": {"kind": "normalize_then_sum"}}}
    balanced = group(*[RIGHT] * 16)
    swapped = [
        one.model_copy(update={"rewards": [RewardScore(name="correctness", raw=raw, weight=0.9), RewardScore(name="format", raw=1 - raw, weight=0.1)]})
        for one, raw in zip(balanced.completions, [1.0, 0.0] * 8, strict=True)
    ]  # fmt: skip
    share = share_at(2, expected([balanced.model_copy(update={"completions": swapped})], config=config))
    assert share.dead == pytest.approx(2 * comb(8, 2) / comb(16, 2))


def test_unscored_completions_count_nowhere_and_prompts_with_fewer_than_16_scored_are_left_out() -> None:
    whole, damaged = group(*[RIGHT] * 16, None, None), group(*[WRONG] * 15, None)
    found = expected([whole, damaged])
    assert (found.rates_P, found.left_out) == ([1.0], 1)
    assert forecast([damaged], CONFIG, 8) is None


def test_a_group_size_above_16_is_forecast_where_as_many_were_sampled() -> None:
    assert expected([group(*[RIGHT] * 32, *[WRONG] * 32)], own=64).at(64) is not None
    few = expected([group(*[RIGHT] * 8, *[WRONG] * 8)], own=64)
    assert few.at(64) is None
    assert "sample at least 64 completions a prompt" in results.conclusion(few, CONFIG, 64)


def test_the_conclusion_names_the_share_at_the_forms_size_and_what_twice_as_many_bring() -> None:
    found = expected([group(*[RIGHT] * 15, WRONG), group(*[RIGHT] * 8, *[WRONG] * 8)], own=8)
    assert results.conclusion(found, CONFIG, 8) == (
        "At group size 8 about 25 % of the groups will be dead (all rewards equal); at group size 16, less than 1 %."
    )
    assert results.conclusion(found, CONFIG, 16).startswith("At group size 16 less than 1 % of the groups")
    told_apart = results.conclusion(expected([group(*[WRONG] * 8, *[ILL_FORMED] * 7, RIGHT)]), CONFIG, 8)
    assert told_apart == (
        "At group size 8 less than 1 % of the groups will be dead (all rewards equal); at group size 16, less than 1 %. "
        "All right or all wrong will be 50 %, but the rewards differ in some of these."
    )


def test_a_reward_that_is_always_0_makes_every_group_dead_however_many_are_right() -> None:
    right, wrong = group(RIGHT, WRONG).completions
    alike = [one.model_copy(update={"reward": 0.0}) for one in (right, wrong)] * 8
    found = expected([group(RIGHT).model_copy(update={"completions": alike})])
    assert {share.dead for share in found.shares} == {1.0}
    assert list(dead_forecast_figure(found.shares, 8).data["share"]) == [1.0] * 15
    assert found.depends_on_rewards
    assert results.conclusion(found, CONFIG, 8) == (
        "At group size 8 all of the groups will be dead (all rewards equal); at group size 16, 100 %. "
        "All right or all wrong will be less than 1 %: others have equal rewards, too."
    )


def test_where_all_are_alike_it_says_what_would_teach_something() -> None:
    for reward, said in ((RIGHT, "Every completion was right"), (WRONG, "No completion was right")):
        assert results.conclusion(expected([group(*[reward] * 16)]), CONFIG, 8).startswith(said)


def test_the_sum_counts_right_ones_and_states_and_what_was_cut() -> None:
    groups = [group(*[RIGHT] * 3, WRONG), group(*[ILL_FORMED] * 4)]
    assert results.summary(groups, CONFIG) == (
        "3 of 8 completions right (38 %) · 2 groups: 1 live, 1 dead · 4 of 8 cut at the token limit"
    )


def test_the_chart_has_a_bar_for_each_size_marks_the_forms_own_and_says_a_share_as_the_sentence_does() -> None:
    found = expected([group(*[RIGHT] * 8, *[WRONG] * 8)])
    data = dead_forecast_figure(found.shares, 8).data
    assert list(data["size"]) == list(range(2, 17))
    assert list(data[data["own"]]["size"]) == [8]
    assert data["right_or_wrong"].isna().all()  # the rewards say the same as right and wrong
    dead = share_at(16, found).dead
    assert (dead, in_percent(dead), data["shown"].iloc[-1]) == (0.0, "< 1 %", "<1%")  # none is called 0
    assert results.conclusion(found, CONFIG, 8).endswith("at group size 16, less than 1 %.")


def test_the_formula_at_the_mean_rate_is_called_too_low_only_where_it_is() -> None:
    assert expected([group(*[RIGHT] * 15, WRONG), group(RIGHT, *[WRONG] * 15)]).mean_rate_is_too_low
    assert not expected([group(*[RIGHT] * 8, *[WRONG] * 8)]).mean_rate_is_too_low
