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
from backend.contract.trl import in_our_terms
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
        completions = []
        for place, (right, formed) in enumerate(parts):
            rewards = [(RIGHT, right, 0.9), (FORMED, formed, 0.1)] + ([("kl_penalty", -kls[place], 0.1)] if kls else [])
            fields: dict[str, object] = {"token_count": 4 + place, "finish_reason": "stop" if place else "length"}
            fields["rewards"] = [RewardScore(name=name, raw=raw, weight=weight) for name, raw, weight in rewards]
            fields["reward"] = (
                None if None in (right, formed) else sum(raw * weight for _, raw, weight in rewards if raw)
            )
            fields |= {"id": 10 * index + place, "index": place, "advantage": 0.0, "kl_mean": 0.5}
            completions.append(CompletionScores.model_validate(fields))
        of = {"id": 100 + index, "index": index, "prompt_id": str(index), "prompt": "Calculate", "state": state}
        records.append(GroupScores.model_validate({**of, "scored": len(parts), "completions": completions}))
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


def test_what_is_said_of_settings_and_recorded_advantages_that_agree_round_or_differ() -> None:
    step, own = step_of(MIXED, ONLY_FORM, SOLVED), own_of()
    again = recompute(step, own, own.settings)
    assert difference(step, again) == 0
    assert not list(sign_flips(step, again))
    assert tally(step, again.advantages_P_G, again.states) == tally(
        step, step.advantages_P_G, [group.state for group in step.groups]
    )
    assert "digit for digit" in agreement(own, own.settings, 0.0)
    assert "do not depend on what was changed" in agreement(own, replace(own.settings, beta=own.settings.beta + 1), 0.0)

    known: Json = {"advantage": {"kind": "group_zscore", "std": "sample", "eps": 1e-4}, "surrogate": None, "kl": None}
    theirs = read_own({"kind": "recorded", "algorithm": known})
    assert theirs is not None
    assert "except for rounding (at most 4.8e-7)" in agreement(theirs, theirs.settings, 4.8e-7)
    assert "were not computed" in agreement(theirs, theirs.settings, 0.01)
    assert "were not computed" in agreement(own_of(), own_of().settings, 4.8e-7)

    own = own_of()
    assert "except for rounding (at most" in agreement(own, own.settings, 2e-16)
    assert "differ by up to 0.500" in agreement(own, own.settings, 0.5)
    assert "What if" in agreement(own, with_weights(own, 1, 1), 0.5)
    assert "stored no advantages" in agreement(own, own.settings, None)


def test_other_weights_kill_or_turn_around_what_differed_by_them_and_what_they_do_not_count_stays_unscored() -> None:
    step, own = step_of(MIXED, ONLY_FORM, SOLVED), own_of()
    again = recompute(step, own, with_weights(own, 0.9, 0.0))
    assert again.states == ["live", "zero_variance", "zero_variance"]
    assert again.advantages_P_G[1].tolist() == [0, 0, 0, 0]
    before = tally(step, step.advantages_P_G, [group.state for group in step.groups])
    after = tally(step, again.advantages_P_G, again.states)
    assert (before.dead_in_words, after.dead_in_words) == ("1 of 3, 33 %", "2 of 3, 67 %")
    flips = list(sign_flips(step, again))
    assert [(flip.group.id, flip.completion.index) for flip in flips] == [(101, place) for place in range(4)]
    ways = [pushed(flip.before, flip.after) for flip in flips]
    assert ways == ["reinforced → 0", "reinforced → 0", "discouraged → 0", "reinforced → 0"]

    step, own = step_of(MIXED), own_of()
    again = recompute(step, own, with_weights(own, -0.9, -0.1))
    turned = {"reinforced → discouraged", "discouraged → reinforced"}
    assert {pushed(flip.before, flip.after) for flip in sign_flips(step, again)} == turned
    np.testing.assert_array_equal(again.advantages_P_G, -step.advantages_P_G)

    own = own_of(gates=True)
    assert own.rewards is not None
    gated = recompute(step, own, with_weights(own, 0.8, 0.1))
    summed = recompute(step, own, changed(own, rewards=own.rewards.model_copy(update={"gates": []})))
    assert gated.rewards_P_G[0].tolist() == [0.9, 0.0, 0.1, 0.0]
    assert summed.rewards_P_G[0].tolist() == [1.0, 0.9, 0.1, 0.0]

    half, own = step_of([(1, None), (0, 1), (1, 1), (0, 0)]), own_of()
    assert np.isnan(recompute(half, own, with_weights(own, 0.5, 0.5)).rewards_P_G[0, 0])
    assert recompute(half, own, with_weights(own, 0.5, 0.0)).rewards_P_G[0].tolist() == [0.5, 0, 0.5, 0]

    own = own_of()
    for advantage in (GroupZscore(), NormalizeThenSum()):
        again = recompute(step, own, with_weights(own, 0, 0, advantage=advantage))
        assert again.states == ["zero_variance"]
        assert not again.advantages_P_G.any()


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


def test_the_kl_in_the_loss_weighs_as_the_loss_does_and_is_told_from_the_metric_of_the_same_name() -> None:
    step = step_of(MIXED, SOLVED)
    assert kl_in_loss(step, own_of(kl={"beta": 0.1})) == pytest.approx(0.5)
    assert kl_in_loss(step, own_of(kl={"beta": 0.1}, aggregation="constant")) == pytest.approx(0.5 * 44 / (8 * 10))
    masked = own_of(kl={"beta": 0.1}, aggregation="constant", truncated_completions="mask")
    assert kl_in_loss(step, masked) == pytest.approx(0.5 * 36 / (6 * 10))  # each group's first one was cut
    assert kl_in_loss(step, own_of(kl={"beta": 0.1, "placement": "reward"})) is None
    words = kl_in_words(own_of(kl={"beta": 0.1}), changed(own_of(kl={"beta": 0.1}), beta=0.2), 0.5)
    assert "0.100 × 0.500 = 0.0500; with β = 0.200 it would be 0.100. The advantages" in words

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

    assert "no KL was measured" in kl_in_words(own_of(), own_of().settings, None)


def test_a_critics_advantages_are_kept_until_another_estimator_is_chosen_and_notes_say_what_one_leaves_out() -> None:
    step, own = step_of(MIXED), own_of(advantage={"kind": "gae"})
    kept = recompute(step, own, with_weights(own, 5, 5))
    np.testing.assert_array_equal(kept.advantages_P_G, step.advantages_P_G)
    assert agreement(own, own.settings, 0.0) == CRITIC
    other = changed(own, advantage=GroupCenter())
    assert recompute(step, own, other).advantages_P_G[0].tolist() == pytest.approx([0.5, 0.4, -0.4, -0.5])
    assert any("critic" in note for note in notes(own, other))

    own = own_of(gates=True, kl={"beta": 0.1, "placement": "reward"}, truncated_completions="mask")
    found = " ".join(notes(own, changed(own, advantage=NormalizeThenSum())))
    assert "KL penalty" in found
    assert "gates" in found
    assert "token limit" in found


def test_what_was_replaced_or_only_probed_has_no_part_in_the_batch() -> None:
    groups = list(step_of(MIXED, SOLVED).groups)
    states: list[GroupState] = ["filtered", "probe"]
    for state in states:
        step = arrays_of([groups[0], groups[1].model_copy(update={"state": state})])
        assert step is not None
        assert [group.id for group in step.groups] == [100]
        assert step.place_of(101) is None
    assert arrays_of([groups[0].model_copy(update={"state": "probe"})]) is None


def test_a_configuration_of_another_version_is_not_guessed_at() -> None:
    assert read_own({"algorithm": {"advantage": {"kind": "of tomorrow"}}}) is None
    sample = read_own({})  # a run that only samples shows what GRPO would make of its groups
    assert sample is not None
    assert sample.settings.advantage == GroupZscore()
    assert sample.rewards is None


def trls(raws_P_G_K: Any, weights_K: Any, *, sum_last: bool) -> Any:
    """Advantages by TRL 1.16's formula, which adds up what is there; `tests/worker/algorithms` holds ours against its code."""
    missing_P_G, axis = np.isnan(raws_P_G_K).all(-1), None if sum_last else 1
    if sum_last:
        raws_P_G_K = raws_P_G_K - np.nanmean(raws_P_G_K, 1, keepdims=True)
        raws_P_G_K = raws_P_G_K / (np.nanstd(raws_P_G_K, 1, ddof=1, keepdims=True) + 1e-4)
    rewards_P_G = np.where(missing_P_G, np.nan, np.nansum(raws_P_G_K * weights_K, -1))
    apart_P_G = rewards_P_G - np.nanmean(rewards_P_G, axis, keepdims=True)
    return np.nan_to_num(apart_P_G / (np.nanstd(rewards_P_G, axis, ddof=1, keepdims=True) + 1e-4))


@pytest.mark.parametrize("how", [{}, {"multi_objective_aggregation": "normalize_then_sum"}], ids=["", "sum last"])
def test_in_a_recording_of_trl_a_function_that_returned_none_leaves_the_others_what_they_are(
    how: dict[str, Json],
) -> None:
    parts: list[Parts] = [[(1, None), (0, 1), (1, 0), (None, None)], [(None, 1), (0.2, 0), (1, 0.5), (0, 0.7)]]
    functions: list[Json] = [{"name": name, "weight": 1.0} for name in (RIGHT, FORMED)]
    own = read_own({"kind": "recorded", **in_our_terms(how), "rewards": {"functions": functions}})
    assert own is not None
    again = recompute(step_of(*parts), own, with_weights(own, 0.5, 2.0))
    expected = trls(np.array(parts, dtype=float), (0.5, 2.0), sum_last=bool(how))
    np.testing.assert_allclose(again.advantages_P_G, expected, atol=1e-6)
    assert again.states == ["live", "live"]
    ours = recompute(step_of(*parts), own_of(), with_weights(own_of(), 0.5, 2.0))
    assert np.isnan(ours.rewards_P_G[:, 0]).all(), "a run of ours leaves such a completion out"


TRACE = TokenTrace(
    completion_id=1,
    token_ids=[1, 2, 3],
    texts=["a", "b", "c"],
    ratio=[0.7, 1.0, 1.25],
    logprob=[-1.0, -1.0, -1.0],
    old_logprob=[-0.5, -1.0, -1.5],
    advantage=[1.0, 1.0, 1.0],
)


def test_another_range_clips_other_tokens_and_what_passed_through_no_model_has_nothing_to_clip() -> None:
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

    assert traced(TRACE.model_copy(update={"ratio": None}), Clip(), 1.0) is None


def test_the_pictures_have_every_completion_before_and_after_and_the_table_six_digits() -> None:
    data = change_figure([1.0, None, -1.0], [0.5, 0.0, 2.0]).data
    assert data.completion.tolist() == [1, 2, 3]
    assert data.after.tolist() == [0.5, 0.0, 2.0]
    assert data.before.isna().tolist() == [False, True, False]

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

    shown = [digits(value) for value in (1 / 3, -2 / 3, 0.1 + 0.2, -0.0, 1.0, None, float("nan"))]
    assert shown == ["0.333333", "−0.666667", "0.3", "0", "1", "–", "–"]
