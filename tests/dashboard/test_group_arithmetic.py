"""The arithmetic that the group page spells out."""

import pytest

from backend.contract.base import Json
from backend.contract.grpo import GrpoConfig
from backend.contract.records import CompletionRecord, Group, RewardScore
from dashboard.components.group_arithmetic import (
    estimator,
    exact,
    extremes,
    formula,
    spell_advantage,
    spell_total,
    terms,
)

CONFIG = GrpoConfig().model_dump(mode="json")


def completion(index: int, reward: float | None, advantage: float | None, *scores: RewardScore) -> CompletionRecord:
    return CompletionRecord(
        id=index,
        index=index,
        text="",
        token_count=1,
        finish_reason="stop",
        rewards=list(scores),
        reward=reward,
        advantage=advantage,
    )


def group(
    *completions: CompletionRecord, state: str = "live", mean: float | None = 0.5, std: float | None = 0.5
) -> Group:
    return Group.model_validate(
        {
            "id": 1,
            "run_id": 1,
            "attempt": 1,
            "step": 0,
            "index": 0,
            "prompt_id": "p",
            "prompt_text": "p",
            "state": state,
            "scored": len(completions),
            "reward_mean": mean,
            "reward_std": std,
            "completions": completions,
        }
    )


def test_the_documents_example_is_spelled_as_the_documents_spell_it() -> None:
    winner = completion(0, 1.0, 0.999999980000)
    whole = group(winner, completion(1, 0.0, -0.99999998))
    assert formula(whole, estimator(CONFIG)) == "advantage = (reward − 0.5) / (0.5 + 1e-08)"
    assert spell_advantage(winner, whole, estimator(CONFIG)) == "(1 − 0.5) / (0.5 + 1e-08) = +1"


def test_centring_divides_by_nothing() -> None:
    config: dict[str, Json] = {"algorithm": {"advantage": {"kind": "group_center"}}}
    whole = group(completion(0, 1.0, 0.5))
    assert formula(whole, estimator(config)) == "advantage = reward − 0.5"
    assert spell_advantage(whole.completions[0], whole, estimator(config)) == "1 − 0.5 = +0.5"


def test_the_stored_settings_are_the_ones_shown() -> None:
    config: dict[str, Json] = {"algorithm": {"advantage": {"kind": "group_zscore", "std": "sample", "eps": 1e-4}}}
    assert estimator(config).std == "sample"
    assert formula(group(), estimator(config)).endswith("(0.5 + 0.0001)")


def test_the_total_is_the_weighted_sum_of_its_components() -> None:
    both = completion(
        0,
        0.95,
        1.0,
        RewardScore(name="correctness", raw=1, weight=0.9),
        RewardScore(name="format", raw=0.5, weight=0.1),
    )
    assert spell_total(both, CONFIG) == "1 × 0.9 + 0.5 × 0.1 = 0.95"
    assert sum(term.value or 0 for term in terms(both, CONFIG)) == pytest.approx(0.95)


def test_a_shut_gate_is_named_and_counts_for_nothing() -> None:
    config: dict[str, Json] = {"rewards": {"gates": [{"reward": "correctness", "requires": "format", "at_least": 1.0}]}}
    gated = completion(
        0,
        0.05,
        0.0,
        RewardScore(name="correctness", raw=1, weight=0.9),
        RewardScore(name="format", raw=0.5, weight=0.1),
    )
    assert spell_total(gated, config) == "1 × 0.9 → 0 (format too low) + 0.5 × 0.1 = 0.05"
    assert sum(term.value or 0 for term in terms(gated, config)) == pytest.approx(0.05)


def test_not_scored_is_not_zero() -> None:
    lost = completion(0, None, None, RewardScore(name="correctness", raw=None, weight=0.9, error="boom"))
    assert spell_total(lost, CONFIG) == "not scored = –"
    assert "not scored" in spell_advantage(lost, group(lost), estimator(CONFIG))
    assert terms(lost, CONFIG)[0].value is None


def test_a_dead_group_says_that_all_rewards_are_equal() -> None:
    same = completion(0, 1.0, 0.0)
    dead = group(same, state="zero_variance", mean=1.0, std=0.0)
    assert spell_advantage(same, dead, estimator(CONFIG)) == "1 − 1 = 0: all rewards are equal"


def test_a_group_that_could_not_be_compared_has_no_formula() -> None:
    assert "fewer than two" in formula(group(state="unscored", mean=None, std=None), estimator(CONFIG))


def test_best_and_worst_are_the_first_of_their_equals() -> None:
    rewards = (0.1, 1.0, 0.1, 1.0)
    assert extremes(group(*(completion(index, reward, 0.0) for index, reward in enumerate(rewards)))) == {
        1: "best",
        0: "worst",
    }


def test_where_all_are_equal_nobody_is_best() -> None:
    assert extremes(group(completion(0, 1.0, 0.0), completion(1, 1.0, 0.0))) == {}
    assert extremes(group(completion(0, None, None))) == {}


def test_numbers_keep_enough_digits_to_follow_by_hand() -> None:
    assert exact(1 / 3) == "0.333333"
    assert exact(-0.5, sign=True) == "−0.5"
    assert exact(0.0, sign=True) == "0"
