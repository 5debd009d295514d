"""The arithmetic that the group page spells out."""

import math

import pytest
from answers import completion_of

from backend.contract.advantage import (
    Advantage,
    BatchBaseline,
    BatchStd,
    BestWorst,
    Gae,
    GroupCenter,
    GroupZscore,
    LeaveOneOut,
    NoBaseline,
    NormalizeThenSum,
    Softmax,
)
from backend.contract.base import Json
from backend.contract.groups import CompletionRecord, Group, RewardScore
from backend.contract.grpo import GrpoConfig
from dashboard.algorithm.estimators import formula, spell_advantage, std_of, stored_estimator
from dashboard.algorithm.rewards import exact, extremes, spell_term, terms
from dashboard.group.numbers import state_in_words
from dashboard.playground.rewards import Typed, played

CONFIG = GrpoConfig().model_dump(mode="json")
STORED = stored_estimator(CONFIG)
RIGHT, HALF_FORMED = RewardScore(name="correctness", raw=1, weight=0.9), RewardScore(name="format", raw=0.5, weight=0.1)


def group(
    *completions: CompletionRecord, state: str = "live", mean: float | None = 0.5, std: float | None = 0.5
) -> Group:
    about = {"id": 1, "run_id": 1, "attempt": 1, "step": 0, "index": 0, "prompt_id": "p", "prompt_text": "p"}
    numbers = {"state": state, "scored": len(completions), "reward_mean": mean, "reward_std": std}
    return Group.model_validate({**about, **numbers, "completions": completions})


def test_the_documents_example_is_spelled_as_the_documents_spell_it_and_other_settings_as_they_were_stored() -> None:
    winner = completion_of(0, 1.0, 0.999999980000)
    whole = group(winner, completion_of(1, 0.0, -0.99999998))
    assert formula(whole, STORED) == "advantage = (reward − 0.5) / (0.5 + 1e-08)"
    assert spell_advantage(winner, whole, STORED) == "(1 − 0.5) / (0.5 + 1e-08) = +1"
    chosen = stored_estimator(config_of(GroupZscore(std="sample", eps=1e-4)))
    assert std_of(chosen) == "sample"
    assert formula(whole, chosen).endswith("(0.5 + 0.0001)")


def test_the_total_is_the_weighted_sum_of_its_components_and_a_shut_gate_is_named_and_counts_for_nothing() -> None:
    both = completion_of(0, 0.95, 1.0, RIGHT, HALF_FORMED)
    assert [spell_term(term) for term in terms(both, CONFIG)] == ["1 × 0.9", "0.5 × 0.1"]
    assert sum(term.value or 0 for term in terms(both, CONFIG)) == pytest.approx(0.95)
    config: dict[str, Json] = {"rewards": {"gates": [{"reward": "correctness", "requires": "format", "at_least": 1.0}]}}
    assert [spell_term(term) for term in terms(both, config)] == ["1 × 0.9 → 0 (format too low)", "0.5 × 0.1"]
    assert sum(term.value or 0 for term in terms(both, config)) == pytest.approx(0.05)


def test_not_scored_is_not_zero() -> None:
    lost = completion_of(0, None, None, RewardScore(name="correctness", raw=None, weight=0.9, error="boom"))
    assert [spell_term(term) for term in terms(lost, CONFIG)] == ["not scored"]
    assert "not scored" in spell_advantage(lost, group(lost), STORED)
    assert terms(lost, CONFIG)[0].value is None


def config_of(chosen: Advantage) -> dict[str, Json]:
    return {"algorithm": {"advantage": chosen.model_dump(mode="json")}}


def computed(spelled: str) -> float:
    """What the left-hand side comes to when a person computes it."""
    python = spelled.partition(" = ")[0].replace("−", "-").replace("×", "*").replace("e^", "math.e**")
    return float(eval(python, {"math": math}))  # noqa: S307 — the page's own arithmetic


BATCH = [[0.2, 0.9, 0.4, math.nan], [1.0, 1.0, 0.0, 0.7]]
SPELLED = (
    GroupZscore(std="sample", eps=1e-4),
    *(GroupZscore(), GroupCenter(), BatchStd(), Softmax(), LeaveOneOut(), BatchBaseline(), NoBaseline()),
)


@pytest.mark.parametrize("chosen", SPELLED, ids=lambda chosen: f"{chosen.kind}-{getattr(chosen, 'std', '')}")
def test_what_is_spelled_comes_to_the_advantage_that_was_stored(chosen: Advantage) -> None:
    whole = played(chosen, Typed([[0.3, 1.0, math.nan, 0.1]], batch=BATCH))
    for one in whole.completions:
        spelled = spell_advantage(one, whole, stored_estimator(config_of(chosen)))
        if one.reward is None:
            assert "not scored" in spelled
        else:
            assert computed(spelled) == pytest.approx(one.advantage, rel=1e-4)
            assert spelled.endswith(f" = {exact(one.advantage, sign=True)}")


def test_huge_rewards_do_not_overflow_the_softmax() -> None:
    whole = played(Softmax(), Typed([[1000.0, 999.0]]))
    how = stored_estimator(config_of(Softmax()))
    assert spell_advantage(whole.completions[0], whole, how) == "e^(1000 − 1000) / 1.36788 = +0.731059"
    assert formula(whole, how).startswith("advantage = e^(reward − 1000) / 1.36788")


def test_what_takes_more_than_a_groups_rewards_is_said_in_words() -> None:
    for chosen, words in ((NormalizeThenSum(), "normalised over the batch"), (Gae(), "tokens' advantages")):
        one = completion_of(0, 1.0, 0.7)
        assert spell_advantage(one, group(one), stored_estimator(config_of(chosen))).startswith("+0.7: ")
        assert words in spell_advantage(one, group(one), stored_estimator(config_of(chosen)))
    pair = played(BestWorst(), Typed([[1.0, 0.0, 0.5]]))
    assert [spell_advantage(one, pair, stored_estimator(config_of(BestWorst()))) for one in pair.completions] == [
        "+1: the best of the group",
        "−1: the worst of the group",
        "0: neither",
    ]


EQUAL = Typed([[1.0, 1.0]], batch=[[0.0, 0.0]])


@pytest.mark.parametrize("chosen", [GroupZscore(), GroupCenter(), BatchStd(), LeaveOneOut(), BestWorst()])
def test_equal_rewards_are_dead_where_completions_are_compared(chosen: Advantage) -> None:
    whole, config = played(chosen, EQUAL), config_of(chosen)
    assert "all rewards are equal" in spell_advantage(whole.completions[0], whole, stored_estimator(config))
    assert state_in_words(whole, config).startswith("**Dead:**")


KL: dict[str, Json] = {"beta": 0.1}


@pytest.mark.parametrize(
    ("loss", "left"),
    [
        ({"kl": {"beta": 0.0}}, "the policy is not moved by this group"),
        ({"kl": {**KL, "placement": "reward"}}, "the policy is not moved by this group"),
        ({"kl": KL}, "only the KL penalty (β = 0.1) acts on its tokens"),
        ({"entropy_bonus": 0.01}, "only the entropy bonus acts on its tokens"),
        ({"kl": KL, "entropy_bonus": 0.01}, "only the KL penalty (β = 0.1) and the entropy bonus act on its tokens"),
    ],
)
def test_a_dead_group_says_what_still_moves_the_policy(loss: dict[str, Json], left: str) -> None:
    for chosen in (GroupZscore(), NormalizeThenSum()):
        config: dict[str, Json] = {"algorithm": {"advantage": chosen.model_dump(mode="json"), **loss}}
        assert state_in_words(played(GroupZscore(), EQUAL), config).endswith(f"every advantage is 0 and {left}.")


@pytest.mark.parametrize(
    ("chosen", "advantage", "words"),
    [
        (Softmax(), "e^1 / 5.43656 = +0.5", "each weighs the same"),
        (NoBaseline(), "1 = +1", "the reward itself"),
        (BatchBaseline(), "1 − 0.5 = +0.5", "whose mean was 0.5"),
    ],
)
def test_equal_rewards_are_trained_on_where_they_are_not_compared(
    chosen: Advantage, advantage: str, words: str
) -> None:
    whole, config = played(chosen, EQUAL), config_of(chosen)
    assert spell_advantage(whole.completions[0], whole, stored_estimator(config)) == advantage
    assert "Dead" not in state_in_words(whole, config)
    assert words in state_in_words(whole, config)


def test_a_dead_group_says_whether_all_were_right_or_all_wrong() -> None:
    twice, unknown = ({"rewards": {"functions": [{"kind": kind, "weight": 2.0}]}} for kind in ("correctness", "python"))
    right = group(completion_of(0, 1.0, 0.0), completion_of(1, 1.0, 0.0), state="zero_variance", mean=1.0, std=0.0)
    wrong = group(completion_of(0, 0.0, 0.0), completion_of(1, 0.0, 0.0), state="zero_variance", mean=0.0, std=0.0)
    assert "all 2 scored completions got 1.00, the highest possible (all correct)" in state_in_words(right, CONFIG)
    assert "(all correct)" not in state_in_words(right, twice)
    assert "got 0 (all wrong)" in state_in_words(wrong, CONFIG)
    for unbounded in (right, wrong):
        assert "(all" not in state_in_words(unbounded, unknown)


def test_a_filtered_group_says_that_it_was_replaced_and_a_probe_that_it_is_scored_and_never_trained_on() -> None:
    replaced = group(completion_of(0, 1.0, None), state="filtered", mean=1.0, std=0.0)
    assert "dynamic sampling replaced it by a group of another prompt" in state_in_words(replaced, CONFIG)
    probe = group(completion_of(0, 1.0, None), completion_of(1, 0.0, None), state="probe", mean=None, std=None)
    words = state_in_words(probe, CONFIG)
    assert words.startswith("**Probe:**")
    assert "2 of 2 completions were scored, 0.500 on average" in words
    assert "never trained on" in formula(probe, STORED)
    for untrained in (replaced, probe):
        assert spell_advantage(untrained.completions[0], untrained, STORED) == "not trained on"


def test_too_few_scored_completions_train_only_where_none_is_compared() -> None:
    one = completion_of(0, 1.0, 0.0)
    pair = group(one, completion_of(1, None, 0.0), state="unscored", mean=1.0, std=0.0)
    lonely, nothing = (pair.model_copy(update={"scored": scored}) for scored in (1, 0))
    assert "fewer than two" in spell_advantage(one, lonely, STORED)
    assert "too few to compare: every advantage is 0 and only the KL penalty" in state_in_words(lonely, CONFIG)
    words = "0 of 2 completions could be scored, and the policy is not moved by this group"
    assert words in state_in_words(nothing, CONFIG)
    assert "is trained on" in state_in_words(lonely, config_of(NoBaseline()))
    assert "fewer than two" in formula(group(state="unscored", mean=None, std=None), STORED)


def test_best_and_worst_are_the_first_of_their_equals_and_nobody_is_where_all_are_equal_up_to_rounding() -> None:
    rewards = (0.1, 1.0, 0.1, 1.0)
    mixed = group(*(completion_of(index, reward, 0.0) for index, reward in enumerate(rewards)))
    assert extremes(mixed) == {1: "best", 0: "worst"}
    assert extremes(group(completion_of(0, None, None))) == {}
    tied = group(completion_of(0, 0.3, 0.0), completion_of(1, 0.1 + 0.2, 0.0), state="zero_variance", mean=0.3, std=0.0)
    assert extremes(tied) == {}
    assert "Dead" in state_in_words(tied, config_of(LeaveOneOut()))


def test_equal_rewards_that_a_kl_penalty_tells_apart_are_said_to_teach_the_kl_alone() -> None:
    near, far = completion_of(0, 0.9, 0.1), completion_of(1, 0.7, -0.1)
    penalised = group(near, far, state="zero_variance", mean=0.8, std=0.1)
    config = config_of(LeaveOneOut())
    assert "stay near the reference" in state_in_words(penalised, config)
    assert "all rewards are equal" not in spell_advantage(near, penalised, stored_estimator(config))


def test_the_only_reward_needs_no_weight_where_its_raw_value_is_the_total() -> None:
    right, short = (RewardScore(name=name, raw=1.0, weight=None) for name in ("right", "short"))
    [term] = terms(completion_of(0, 1.0, 0.5, right), {})
    assert (term.value, spell_term(term)) == (1.0, "1")
    for one in (completion_of(0, 2.0, 0.5, right), completion_of(0, 1.0, 0.5, right, short)):
        assert {(term.value, spell_term(term)) for term in terms(one, {})} == {(None, "1, weight not recorded")}


def test_a_reward_whose_weight_nobody_recorded_has_no_total_and_is_not_called_unscored() -> None:
    one = completion_of(0, None, 0.5, RewardScore(name="right", raw=1.0, weight=None))
    [term] = terms(one, {})
    assert (term.value, spell_term(term)) == (None, "1, weight not recorded")
    spelled = spell_advantage(one, group(one, mean=None), STORED)
    assert spelled == "+0.5, as the trainer computed it: the weights of the rewards were not recorded"
    assert formula(group(one, mean=None), STORED).startswith("advantage: as the trainer computed it")
    lost = completion_of(0, None, None, RewardScore(name="right", raw=None, weight=None))
    assert "not scored" in spell_advantage(lost, group(lost), STORED)
