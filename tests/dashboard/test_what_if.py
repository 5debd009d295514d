"""The what-if's arithmetic: what follows from other weights, gates, estimators and β, and what is said of it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from backend.contract.advantage import BatchBaseline, GroupCenter, GroupZscore, NormalizeThenSum, Softmax
from backend.contract.base import Json
from backend.contract.groups import GroupState, RewardScore, TokenTrace
from backend.contract.inspection import CompletionScores, GroupScores
from backend.contract.surrogate import Clip
from dashboard.algorithm.recomputation import Own, Settings, StepArrays, arrays_of, difference, read_own, recompute
from dashboard.what_if.changes import pushed, sign_flips, tally, traced
from dashboard.what_if.figures import change_figure, distribution_figure, tokens_figure
from dashboard.what_if.group_part import digits
from dashboard.what_if.words import CRITIC, agreement, kl_in_loss, kl_in_words, kl_per_token, notes

RIGHT, FORMED = "right", "formed"
Parts = list[tuple[float | None, float | None]]  # of each completion: right, formed


def own_of(*, gates: bool = False, weights: tuple[float, float] = (0.9, 0.1), **algorithm: Any) -> Own:
    functions: list[Json] = [
        {"kind": "correctness", "name": RIGHT, "weight": weights[0]},
        {"kind": "format", "name": FORMED, "weight": weights[1]},
    ]
    gated: list[Json] = [{"reward": RIGHT, "requires": FORMED, "at_least": 1.0}] if gates else []
    own = read_own(
        {
            "algorithm": {"kl": {"beta": 0}, **algorithm},
            "rewards": {"functions": functions, "gates": gated},
            "sampling": {"max_new_tokens": 10},
        }
    )
    assert own is not None
    return own


def with_weights(own: Own, right: float, formed: float, **changes: Any) -> Settings:
    assert own.rewards is not None
    functions = [
        function.model_copy(update={"weight": weight})
        for function, weight in zip(own.rewards.functions, (right, formed), strict=True)
    ]
    return changed(own, rewards=own.rewards.model_copy(update={"functions": functions}), **changes)


def changed(own: Own, **changes: Any) -> Settings:
    return Settings(**{**own.settings.__dict__, **changes})


def step_of(*groups: Parts, kls: list[float] | None = None, state: GroupState = "live") -> StepArrays:
    """Groups of the default weights, with GRPO's advantages; `kls` are sums, taken off the reward with β = 0.1."""
    own = own_of()
    records = []
    for index, parts in enumerate(groups):
        completions = [
            CompletionScores(
                id=10 * index + place,
                index=place,
                token_count=4 + place,
                finish_reason="stop" if place else "length",
                rewards=[
                    RewardScore(name=RIGHT, raw=right, weight=0.9),
                    RewardScore(name=FORMED, raw=formed, weight=0.1),
                    *([RewardScore(name="kl_penalty", raw=-kls[place], weight=0.1)] if kls else []),
                ],
                reward=None
                if right is None or formed is None
                else right * 0.9 + formed * 0.1 - (0.1 * kls[place] if kls else 0),
                advantage=0.0,
                kl_mean=0.5,
            )
            for place, (right, formed) in enumerate(parts)
        ]
        records.append(
            GroupScores(
                id=100 + index,
                index=index,
                prompt_id=str(index),
                prompt="Calculate",
                state=state,
                scored=len(parts),
                completions=completions,
            )
        )
    step = arrays_of(records)
    assert step is not None
    again = recompute(step, own, own.settings)
    stored = [
        group.model_copy(
            update={
                "state": again.states[p],
                "completions": [
                    one.model_copy(update={"advantage": float(again.advantages_P_G[p, g])})
                    for g, one in enumerate(group.completions)
                ],
            }
        )
        for p, group in enumerate(step.groups)
    ]
    arrays = arrays_of(stored)
    assert arrays is not None
    return arrays


MIXED: Parts = [(1, 1), (1, 0), (0, 1), (0, 0)]
ONLY_FORM: Parts = [(0, 1), (0, 1), (0, 0), (0, 1)]
SOLVED: Parts = [(1, 1)] * 4


def test_the_runs_own_settings_change_nothing() -> None:
    step, own = step_of(MIXED, ONLY_FORM, SOLVED), own_of()
    again = recompute(step, own, own.settings)
    assert difference(step, again) == 0
    assert not list(sign_flips(step, again))
    assert tally(step, again.advantages_P_G, again.states) == tally(
        step, step.advantages_P_G, [group.state for group in step.groups]
    )
    assert "digit for digit" in agreement(own, own.settings, 0.0)
    assert "do not depend on what was changed" in agreement(own, replace(own.settings, beta=own.settings.beta + 1), 0.0)


def test_what_another_trainer_rounds_to_single_precision_was_computed_by_its_settings() -> None:
    known: Json = {"advantage": {"kind": "group_zscore", "std": "sample", "eps": 1e-4}, "surrogate": None, "kl": None}
    theirs = read_own({"kind": "recorded", "algorithm": known})
    assert theirs is not None
    assert "except for rounding (at most 4.8e-7)" in agreement(theirs, theirs.settings, 4.8e-7)
    assert "were not computed" in agreement(theirs, theirs.settings, 0.01)
    assert "were not computed" in agreement(own_of(), own_of().settings, 4.8e-7)


def test_without_the_format_reward_a_group_that_only_differed_in_it_is_dead() -> None:
    step, own = step_of(MIXED, ONLY_FORM, SOLVED), own_of()
    again = recompute(step, own, with_weights(own, 0.9, 0.0))
    assert again.states == ["live", "zero_variance", "zero_variance"]
    assert again.advantages_P_G[1].tolist() == [0, 0, 0, 0]
    before = tally(step, step.advantages_P_G, [group.state for group in step.groups])
    after = tally(step, again.advantages_P_G, again.states)
    assert (before.dead_in_words, after.dead_in_words) == ("1 of 3, 33 %", "2 of 3, 67 %")
    flips = list(sign_flips(step, again))
    assert [(flip.group.id, flip.completion.index, pushed(flip.before, flip.after)) for flip in flips] == [
        (101, 0, "reinforced → 0"),
        (101, 1, "reinforced → 0"),
        (101, 2, "discouraged → 0"),
        (101, 3, "reinforced → 0"),
    ]


def test_a_negative_weight_turns_the_signs_around() -> None:
    step, own = step_of(MIXED), own_of()
    again = recompute(step, own, with_weights(own, -0.9, -0.1))
    assert {pushed(flip.before, flip.after) for flip in sign_flips(step, again)} == {
        "reinforced → discouraged",
        "discouraged → reinforced",
    }
    np.testing.assert_array_equal(again.advantages_P_G, -step.advantages_P_G)


def test_a_gate_that_is_left_out_lets_the_reward_count() -> None:
    step, own = step_of(MIXED), own_of(gates=True)
    assert own.rewards is not None
    gated = recompute(step, own, with_weights(own, 0.8, 0.1))
    summed = recompute(step, own, changed(own, rewards=own.rewards.model_copy(update={"gates": []})))
    assert gated.rewards_P_G[0].tolist() == [0.9, 0.0, 0.1, 0.0]
    assert summed.rewards_P_G[0].tolist() == [1.0, 0.9, 0.1, 0.0]


def test_what_could_not_be_scored_stays_unscored_unless_its_weight_is_0() -> None:
    step, own = step_of([(1, None), (0, 1), (1, 1), (0, 0)]), own_of()
    assert np.isnan(recompute(step, own, with_weights(own, 0.5, 0.5)).rewards_P_G[0, 0])
    assert recompute(step, own, with_weights(own, 0.5, 0.0)).rewards_P_G[0].tolist() == [0.5, 0, 0.5, 0]


@pytest.mark.parametrize(
    ("advantage", "expected"),
    [
        (GroupCenter(), [0.5, 0.5, -0.5, -0.5]),
        (Softmax(), [*[np.e / (2 * np.e + 2)] * 2, *[1 / (2 * np.e + 2)] * 2]),
        (BatchBaseline(), [0.25, 0.25, -0.75, -0.75]),
        (GroupZscore(std="sample", eps=0.5), [0.5 / (3**-0.5 + 0.5)] * 2 + [-0.5 / (3**-0.5 + 0.5)] * 2),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_another_estimator_gives_its_own_advantages(advantage: Any, expected: list[float]) -> None:
    step, own = step_of([(1, 1), (1, 1), (0, 0), (0, 0)], SOLVED), own_of()
    again = recompute(step, own, changed(own, advantage=advantage))
    assert again.advantages_P_G[0].tolist() == pytest.approx(expected)


def test_with_all_weights_0_everything_is_dead_under_every_estimator() -> None:
    step, own = step_of(MIXED), own_of()
    for advantage in (GroupZscore(), NormalizeThenSum()):
        again = recompute(step, own, with_weights(own, 0, 0, advantage=advantage))
        assert again.states == ["zero_variance"]
        assert not again.advantages_P_G.any()


def test_another_beta_moves_advantages_only_where_the_kl_is_in_the_reward() -> None:
    step = step_of(SOLVED, kls=[0.1, 0.2, 0.3, 0.4])
    in_reward = own_of(kl={"beta": 0.1, "placement": "reward"}, advantage={"kind": "group_center"})
    again = recompute(step, in_reward, changed(in_reward, beta=1.0))
    assert again.advantages_P_G[0].tolist() == pytest.approx([0.15, 0.05, -0.05, -0.15])
    assert again.states == ["zero_variance"]  # the task's own rewards are equal, whatever the penalty adds
    in_loss = own_of(kl={"beta": 0.1})
    unmoved = recompute(step, in_loss, changed(in_loss, beta=1.0))
    np.testing.assert_array_equal(unmoved.rewards_P_G, step.rewards_P_G)
    assert "instead of 0.100" in kl_in_words(in_reward, changed(in_reward, beta=1.0), None)


def test_the_kl_in_the_loss_weighs_completions_as_the_loss_does() -> None:
    step = step_of(MIXED, SOLVED)
    assert kl_in_loss(step, own_of(kl={"beta": 0.1})) == pytest.approx(0.5)
    assert kl_in_loss(step, own_of(kl={"beta": 0.1}, aggregation="constant")) == pytest.approx(0.5 * 44 / (8 * 10))
    masked = own_of(kl={"beta": 0.1}, aggregation="constant", truncated_completions="mask")
    assert kl_in_loss(step, masked) == pytest.approx(0.5 * 36 / (6 * 10))  # each group's first one was cut
    assert kl_in_loss(step, own_of(kl={"beta": 0.1, "placement": "reward"})) is None
    words = kl_in_words(own_of(kl={"beta": 0.1}), changed(own_of(kl={"beta": 0.1}), beta=0.2), 0.5)
    assert "0.100 × 0.500 = 0.0500; with β = 0.200 it would be 0.100. The advantages" in words


def test_the_kl_in_the_loss_is_told_from_the_metric_of_the_same_name() -> None:
    groups = step_of(MIXED).groups
    first, *others = groups[0].completions
    odd = groups[0].model_copy(update={"completions": [first.model_copy(update={"kl_mean": 4.5}), *others]})
    step, own = arrays_of([odd]), own_of(kl={"beta": 0.1})
    assert step is not None
    lengths = [one.token_count for one in odd.completions]
    in_loss, per_token = kl_in_loss(step, own), kl_per_token(step)
    assert in_loss == pytest.approx(0.5 + 4 / len(lengths))
    assert per_token == pytest.approx(0.5 + 4 * lengths[0] / sum(lengths))
    said = f"This KL is aggregated like the loss (sequence mean); the metric kl, its mean over all tokens, is {per_token:.3g}."
    assert said in kl_in_words(own, own.settings, in_loss, per_token)
    twice = own_of(kl={"beta": 0.1}, updates_per_batch=2)  # the metric is then a mean over both updates
    assert "(sequence mean); its mean over all tokens is" in kl_in_words(twice, twice.settings, in_loss, per_token)
    assert "aggregated" not in kl_in_words(own, own.settings, 0.5, 0.5)


def test_without_a_penalty_there_is_no_kl_to_weigh() -> None:
    assert "no KL was measured" in kl_in_words(own_of(), own_of().settings, None)


def test_a_critics_advantages_are_shown_as_they_are_until_another_estimator_is_chosen() -> None:
    step, own = step_of(MIXED), own_of(advantage={"kind": "gae"})
    kept = recompute(step, own, with_weights(own, 5, 5))
    np.testing.assert_array_equal(kept.advantages_P_G, step.advantages_P_G)
    assert agreement(own, own.settings, 0.0) == CRITIC
    other = changed(own, advantage=GroupCenter())
    assert recompute(step, own, other).advantages_P_G[0].tolist() == pytest.approx([0.5, 0.4, -0.4, -0.5])
    assert any("critic" in note for note in notes(own, other))


def test_what_was_replaced_or_only_probed_has_no_part_in_the_batch() -> None:
    groups = list(step_of(MIXED, SOLVED).groups)
    states: list[GroupState] = ["filtered", "probe"]
    for state in states:
        step = arrays_of([groups[0], groups[1].model_copy(update={"state": state})])
        assert step is not None
        assert [group.id for group in step.groups] == [100]
        assert step.place_of(101) is None
    assert arrays_of([groups[0].model_copy(update={"state": "probe"})]) is None


def test_what_was_recorded_by_other_arithmetic_is_said_to_be() -> None:
    own = own_of()
    assert "except for rounding (at most" in agreement(own, own.settings, 2e-16)
    assert "differ by up to 0.500" in agreement(own, own.settings, 0.5)
    assert "What if" in agreement(own, with_weights(own, 1, 1), 0.5)
    assert "stored no advantages" in agreement(own, own.settings, None)


def test_a_configuration_of_another_version_is_not_guessed_at() -> None:
    assert read_own({"algorithm": {"advantage": {"kind": "of tomorrow"}}}) is None
    sample = read_own({})  # a run that only samples shows what GRPO would make of its groups
    assert sample is not None
    assert sample.settings.advantage == GroupZscore()
    assert sample.rewards is None


def test_notes_say_what_normalize_then_sum_leaves_out() -> None:
    own = own_of(gates=True, kl={"beta": 0.1, "placement": "reward"}, truncated_completions="mask")
    found = " ".join(notes(own, changed(own, advantage=NormalizeThenSum())))
    assert "KL penalty" in found
    assert "gates" in found
    assert "token limit" in found


TRACE = TokenTrace(
    completion_id=1,
    token_ids=[1, 2, 3],
    texts=["a", "b", "c"],
    ratio=[0.7, 1.0, 1.25],
    logprob=[-1.0, -1.0, -1.0],
    old_logprob=[-0.5, -1.0, -1.5],
    advantage=[1.0, 1.0, 1.0],
)


def test_another_range_clips_other_tokens() -> None:
    narrow, wide = traced(TRACE, Clip(), None), traced(TRACE, Clip(epsilon_high=0.3), None)
    assert narrow is not None
    assert wide is not None
    assert (narrow.low.tolist(), narrow.high.tolist()) == ([False] * 3, [False, False, True])
    assert not wide.high.any()
    assert narrow.surrogate.tolist() == pytest.approx([0.7, 1.0, 1.2])
    assert wide.surrogate.tolist() == pytest.approx([0.7, 1.0, 1.25])
    discouraged = traced(TRACE, Clip(), -1.0)
    assert discouraged is not None
    assert discouraged.low.tolist() == [True, False, False]
    figure = tokens_figure(narrow, discouraged)
    assert figure.data.clipped.tolist() == ["", "", "above", "below", "", ""]


def test_what_passed_through_no_model_has_nothing_to_clip() -> None:
    assert traced(TRACE.model_copy(update={"ratio": None}), Clip(), 1.0) is None


def test_the_picture_of_a_group_has_the_stored_and_the_recomputed_advantage_of_each() -> None:
    data = change_figure([1.0, None, -1.0], [0.5, 0.0, 2.0]).data
    assert data.completion.tolist() == [1, 2, 3]
    assert data.after.tolist() == [0.5, 0.0, 2.0]
    assert data.before.isna().tolist() == [False, True, False]


def test_the_distributions_count_every_completion_once_and_0_in_the_middle() -> None:
    step, own = step_of(MIXED, SOLVED), own_of()
    after = recompute(step, own, changed(own, advantage=GroupCenter()))
    data = distribution_figure(step.advantages_P_G, after.advantages_P_G).data
    assert data.before.sum() == data.after.sum() == 8
    middle = data[(data.low < 0) & (data.high > 0)]
    assert middle.before.tolist() == [4]
    widest = distribution_figure(np.array([[1.7e308, -1.7e308]]), np.array([[0.0, 1.7e308]])).data
    assert (widest["before"].sum(), widest["after"].sum()) == (2, 2)
    empty = distribution_figure(np.zeros((1, 2)), np.zeros((1, 2))).data
    assert empty.after.sum() == 2


def test_the_table_shows_six_digits_and_no_rounding_errors_of_the_arithmetic() -> None:
    shown = [digits(value) for value in (1 / 3, -2 / 3, 0.1 + 0.2, -0.0, 1.0, None, float("nan"))]
    assert shown == ["0.333333", "−0.666667", "0.3", "0", "1", "–", "–"]
