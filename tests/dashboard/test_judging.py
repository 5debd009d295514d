"""What is asked next, what is said of the agreement, and what a run on judged pairs starts with."""

from itertools import combinations

import pytest
import recorded
from answers import MADE, run_of, stored

from backend.contract.catalog import RecipeCard
from backend.contract.groups import Group
from backend.contract.people import Agreement, Choice, Disagreement
from backend.contract.preference import DatasetPairs, DpoConfig, RewardModelConfig
from backend.contract.recipes import RECIPES
from backend.contract.records import Upload, UploadPreview
from dashboard.components.table import frame
from dashboard.people.agreement import DISAGREEMENT, in_words, origin_of, said, trained_on, wilson
from dashboard.people.proposal import implied, places, propose


def group_of(rewards: list[float | None], texts: list[str] | None = None, number: int = 7) -> Group:
    """A stored group; the texts differ unless they are given."""
    texts = texts or [f"text {place}" for place in range(len(rewards))]
    return stored(recorded.group_of(0, rewards, texts=texts), number)


def chosen(better: int, worse: int) -> Choice:
    ids = {"id": 1, "group_id": 7, "better_id": 100 + better, "worse_id": 100 + worse}
    return Choice.model_validate({**ids, "better_index": better, "worse_index": worse, "created_at": MADE})


def asked(group: Group, *choices: Choice) -> set[int]:
    pair = propose(group, choices)
    assert pair is not None
    return set(places(pair))


# ---- what is asked next


def test_what_follows_from_choices_is_known() -> None:
    assert implied([(1, 2), (2, 3)]) == {(1, 2), (2, 3), (1, 3)}
    assert implied([(2, 3), (1, 2), (3, 4)]) == {(a, b) for a, b in combinations((1, 2, 3, 4), 2)}
    assert implied([(1, 2), (3, 4)]) == {(1, 2), (3, 4)}
    assert implied([]) == set()


@pytest.mark.parametrize("seed", range(5))
def test_questions_end_when_the_order_is_known_and_never_ask_what_follows(seed: int) -> None:
    group = group_of([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], number=seed)
    taste = [3, 0, 5, 1, 4, 2]
    choices: list[Choice] = []
    while (pair := propose(group, choices)) is not None:
        known = {frozenset(each) for each in implied((one.better_index, one.worse_index) for one in choices)}
        assert places(pair) not in known
        one, other = (completion.index for completion in pair)
        choices.append(chosen(one, other) if taste.index(one) < taste.index(other) else chosen(other, one))
    assert len(choices) < 15
    assert len(implied((one.better_index, one.worse_index) for one in choices)) == 15


def test_pairs_that_the_reward_decides_come_first() -> None:
    group, undecided = group_of([1.0, 1.0, 0.0, None]), ({0, 1}, {0, 3}, {1, 3}, {2, 3})
    assert asked(group) in ({0, 2}, {1, 2})
    assert asked(group, chosen(0, 2)) == {1, 2}
    assert asked(group, chosen(0, 2), chosen(1, 2)) in undecided


def test_completions_of_one_text_are_asked_about_once_and_skipped_pairs_are_passed_over() -> None:
    assert propose(group_of([1.0, 0.0], ["same", "same"]), []) is None
    group = group_of([1.0, 0.1, 0.1, 0.1], ["right", "wrong", "wrong", "wrong"])
    assert asked(group) == {0, 1}
    assert propose(group, [chosen(0, 3)]) is None
    skipped = set()
    while (pair := propose(group_of([1.0, 0.5, 0.0]), [], skipped)) is not None:
        skipped.add(places(pair))
    assert skipped == {frozenset(each) for each in combinations(range(3), 2)}


def test_the_same_group_asks_the_same_and_the_sides_are_drawn() -> None:
    def sides(number: int) -> tuple[int, int]:
        pair = propose(group_of([1.0, 0.0], number=number), [])
        assert pair is not None
        return pair[0].index, pair[1].index

    assert [sides(number) for number in range(20)] == [sides(number) for number in range(20)]
    assert {sides(number) for number in range(20)} == {(0, 1), (1, 0)}


# ---- the agreement in words


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (81, 263, 0.2553, 0.3662)],
)
def test_the_interval_is_wilsons(hits: int, n: int, low: float, high: float) -> None:
    assert wilson(hits, n) == pytest.approx((low, high), abs=5e-5)


def agreement(agreed: int, disagreed: int, undecided: int = 0) -> Agreement:
    pairs = agreed + disagreed + undecided
    counts = {"agreed": agreed, "disagreed": disagreed, "undecided": undecided, "pairs": pairs, "choices": pairs}
    return Agreement(thumbs_up=1, thumbs_down=0, **counts)


def test_the_agreement_is_said_with_its_count_and_interval() -> None:
    assert in_words(agreement(41, 9, 1)) == (
        "**The reward agrees with people on 41 of 50 pairs**: 82 %, 95 % interval 69 % to 90 %, more often than chance. "
        "On 1 more pair the reward says nothing: it is equal for both, or missing."
    )
    assert "less often than chance" in in_words(agreement(1, 12))
    assert "this agreement may be chance" in in_words(agreement(1, 0))
    assert in_words(agreement(0, 0, 2)).startswith("**The reward says nothing about the 2 pairs**")
    assert said(agreement(2, 0)) == "2 choices, 1 thumb up, 0 thumbs down so far."


def test_hostile_prompts_stay_one_line_of_text() -> None:
    place = {"group_id": 1, "step": 3, "group_index": 0, "prompt": "<b>bold</b>\n\x1b[31m\u202e"}
    pair = {"better_index": 2, "worse_index": 0, "better_reward": 0.1, "worse_reward": 1.0}
    [row] = frame([Disagreement.model_validate(place | pair)], DISAGREEMENT).to_dict("records")
    assert row["prompt"] == "<b>bold</b>⏎␛[31m⟦RLO⟧"
    assert row["people"] == "3 better than 1"
    assert row["reward"] == "3 gets 0.100, 1 gets 1.00"


# ---- from pairs to a run


def preview_of(prompt: object) -> UploadPreview:
    upload = Upload(id=9, name="pairs", rows=1, columns=["prompt"], size_bytes=1, sha256="0", created_at=MADE)
    return UploadPreview.model_validate({"upload": upload, "rows": [{"prompt": prompt}]})


def recipe(name: str) -> RecipeCard:
    return next(one for one in RECIPES if one.id == name)


def test_the_address_names_recipe_upload_and_run() -> None:
    assert origin_of("reward-model@9@3") == ("reward-model", 9, 3)
    for broken in ("", "dpo", "dpo@9", "dpo@x@3", "dpo@9@3@4", "dpo@9@-3", "dpo@²@3", f"dpo@9@{10**19}"):
        assert origin_of(broken) is None


def test_a_run_on_judged_pairs_starts_from_the_model_that_was_judged() -> None:
    model = {"source": "some/model", "lora": {"rank": 8}}
    judged = run_of(config={"kind": "grpo", "model": model})
    dpo = DpoConfig.model_validate(trained_on(judged, preview_of("text"), recipe("dpo")))
    assert dpo.model.source == "some/model"
    assert dpo.model.lora is not None
    assert isinstance(dpo.pairs, DatasetPairs)
    assert (dpo.pairs.source, dpo.pairs.prompt_format) == ("upload:9", "raw")
    rewarding = trained_on(judged, preview_of([{"role": "user", "content": "text"}]), recipe("reward-model"))
    reward_model = RewardModelConfig.model_validate(rewarding)
    assert reward_model.model.lora is None
    assert isinstance(reward_model.pairs, DatasetPairs)
    assert reward_model.pairs.prompt_format == "chat"
