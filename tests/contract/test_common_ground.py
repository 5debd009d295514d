"""What a recipe brings to a comparison, and what it leaves to the common ground."""

from typing import Any

import pytest

from backend.contract.common_ground import comparable, distinct, on_common_ground, seeded, sweep_of
from backend.contract.config import RUN_CONFIG
from backend.contract.grpo import GrpoConfig
from backend.contract.recipes import RECIPES

QUICKSTART = RECIPES[0].config
CARDS = {card.id: card for card in RECIPES}
COMPARED = comparable(RECIPES)


def recipe(**parts: Any) -> dict[str, Any]:
    return GrpoConfig.model_validate({"recipe": "mine", **parts}).model_dump(mode="json")


def with_steps(steps: int) -> dict[str, Any]:
    return {**QUICKSTART, "budget": {**QUICKSTART["budget"], "steps": steps}}  # type: ignore[dict-item]


@pytest.mark.parametrize("card", COMPARED, ids=lambda card: card.id)
@pytest.mark.parametrize("steps", [3, 100])
def test_every_recipe_is_valid_on_the_quickstart_and_keeps_its_algorithm(card: Any, steps: int) -> None:
    placed = on_common_ground(card.config, with_steps(steps))
    assert RUN_CONFIG.validate_python(placed).model_dump(mode="json") == placed
    assert placed["recipe"] == card.id
    assert placed["budget"]["steps"] == steps  # type: ignore[index,call-overload]
    if placed["kind"] == "grpo":
        assert placed["algorithm"] == card.config["algorithm"]
        assert (placed["model"], placed["task"]) == (QUICKSTART["model"], QUICKSTART["task"])


def test_what_is_compared_are_policies_and_none_that_only_names_another_model_and_task() -> None:
    assert {card.config["kind"] for card in COMPARED} <= {"grpo", "dpo"}
    left = [card.id for card in distinct(COMPARED, QUICKSTART)]
    assert left[0] == "grpo"
    assert "grpo-notebook" in left
    assert "smollm2-arithmetic" not in left


def test_a_learning_rate_is_the_recipes_if_named_for_this_model_and_a_warm_up_is_cut_to_a_run_that_is_shorter() -> None:
    placed: Any = on_common_ground(recipe(optimizer={"learning_rate": 1e-3}), QUICKSTART)
    assert (placed["optimizer"]["learning_rate"], placed["optimizer"]["warmup_steps"]) == (1e-3, 10)
    other = recipe(model={"source": "builtin:smollm2-135m-instruct"}, optimizer={"learning_rate": 1e-3})
    assert on_common_ground(other, QUICKSTART)["optimizer"] == QUICKSTART["optimizer"]
    short: Any = on_common_ground(QUICKSTART, with_steps(9))
    assert short["optimizer"]["warmup_steps"] == 0


def test_the_notebooks_recipe_takes_the_quickstarts_sampling_and_rewards() -> None:
    placed = on_common_ground(CARDS["grpo-notebook"].config, QUICKSTART)
    for part in ("sampling", "optimizer", "rewards", "budget"):
        assert placed[part] == QUICKSTART[part]
    assert on_common_ground(QUICKSTART, QUICKSTART) == QUICKSTART


@pytest.mark.parametrize(("size", "prompts"), [(1, 128), (4, 32), (128, 1), (1000, 1)])
def test_another_group_size_leaves_the_completions_of_a_step_as_many(size: int, prompts: int) -> None:
    alone = {"advantage": {"kind": "batch_baseline"}}  # an estimator that needs no siblings
    placed: Any = on_common_ground(recipe(sampling={"group_size": size}, algorithm=alone), QUICKSTART)
    assert (placed["sampling"]["group_size"], placed["sampling"]["prompts_per_step"]) == (size, prompts)


def test_a_reward_for_length_is_part_of_the_recipe_and_a_judgement_of_answers_is_the_grounds() -> None:
    functions = [
        {"name": "exact_match", "kind": "correctness"},
        {"name": "overlong", "kind": "length", "maximum": 32, "ramp": 16},
    ]
    placed: Any = on_common_ground(recipe(rewards={"functions": functions}), QUICKSTART)
    again: Any = on_common_ground(recipe(rewards={"functions": functions}), placed)
    for config in (placed, again):
        assert [one["name"] for one in config["rewards"]["functions"]] == ["correctness", "format", "overlong"]


def test_a_recipe_on_a_persons_own_pairs_keeps_them_and_takes_the_model_the_length_and_the_evaluation() -> None:
    other: dict[str, Any] = {
        "kind": "dpo",
        "model": QUICKSTART["model"],
        "pairs": {"kind": "dataset", "source": "upload:1"},
        "budget": {"steps": 7, "seed": 1, "eval_every": 2, "saves": 3},
    }
    placed = on_common_ground(other, seeded(with_steps(50), 4))
    assert placed == {**other, "budget": {"steps": 50, "seed": 4, "eval_every": 25, "saves": 3}}


def test_a_recipe_that_samples_its_pairs_samples_them_of_the_same_model_on_the_same_task() -> None:
    base: Any = CARDS["smollm2-arithmetic"].config
    placed: Any = on_common_ground(CARDS["dpo"].config, base)
    assert RUN_CONFIG.validate_python(placed).model_dump(mode="json") == placed
    assert (placed["model"], placed["optimizer"]) == (base["model"], base["optimizer"])
    assert (placed["pairs"]["task"], placed["pairs"]["rewards"]) == (base["task"], base["rewards"])
    assert placed["pairs"]["decoding"].items() <= base["sampling"].items()
    assert placed["pairs"]["prompts"] == CARDS["dpo"].config["pairs"]["prompts"]  # type: ignore[index,call-overload]


def test_a_sweep_has_every_recipe_of_a_seed_before_the_next_seed() -> None:
    runs: Any = sweep_of([CARDS["grpo"], CARDS["grpo-notebook"]], QUICKSTART, [0, 5])
    names = [run["name"] for run in runs]
    assert names == ["grpo, seed 0", "grpo-notebook, seed 0", "grpo, seed 5", "grpo-notebook, seed 5"]
    assert [run["config"]["budget"]["seed"] for run in runs] == [0, 0, 5, 5]
