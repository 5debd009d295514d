"""Recipes on one task, model and budget, so that what differs between their runs is the algorithm."""

import json
from collections.abc import Mapping, Sequence

from backend.contract.base import Json
from backend.contract.catalog import RecipeCard
from backend.contract.stored import reward_functions
from backend.contract.training import Decoding, Optimizer, Sampling

POLICY_KINDS = frozenset({"grpo", "dpo"})  # kinds of run that train a policy, whose held-out success can be compared
MEASURED_BY = frozenset({"steps", "seed", "eval_every", "eval_items", "eval_samples"})


def comparable(recipes: Sequence[RecipeCard]) -> list[RecipeCard]:
    """The recipes that train a policy."""
    return [card for card in recipes if card.config.get("kind") in POLICY_KINDS]


def distinct(recipes: Sequence[RecipeCard], base: Mapping[str, Json]) -> list[RecipeCard]:
    """The recipes that differ on this ground; of those that only name another task or model, the first."""
    first: dict[str, RecipeCard] = {}
    for card in recipes:
        what = {**on_common_ground(card.config, base), "recipe": None}
        first.setdefault(json.dumps(what, sort_keys=True), card)
    return list(first.values())


def on_common_ground(recipe: Mapping[str, Json], base: Mapping[str, Json]) -> dict[str, Json]:
    """The recipe's algorithm on the base's model, task, rewards, decoding and budget.

    What a recipe says of the optimizer and of the group size (where it departs from the defaults) goes with its algorithm if it
    was said for the base's model; the completions in a step stay the base's. So do its rewards for length, which shape the
    algorithm's signal and judge no answer. A recipe that trains on pairs takes the base's model, length, seed and evaluation, and
    for pairs that it samples itself the task, rewards and decoding, too.
    """
    if recipe["kind"] != base["kind"]:
        return warmed_up(_on_pairs(recipe, base))
    placed = {**base, "recipe": recipe.get("recipe"), "algorithm": recipe["algorithm"]}
    own = reward_functions(base)
    names = {function.get("name") for function in own}
    lengths = [one for one in reward_functions(recipe) if one.get("kind") == "length" and one.get("name") not in names]
    placed["rewards"] = {**_part(base, "rewards"), "functions": [*own, *lengths]}
    if _part(recipe, "model").get("source") == _part(base, "model").get("source"):
        placed["optimizer"] = {**_part(base, "optimizer"), **_said(recipe, "optimizer", Optimizer())}
        sampling, size = _part(base, "sampling"), _said(recipe, "sampling", Sampling()).get("group_size")
        prompts, each = sampling.get("prompts_per_step"), sampling.get("group_size")
        if isinstance(size, int) and isinstance(prompts, int) and isinstance(each, int):  # as many completions
            sampling = {**sampling, "group_size": size, "prompts_per_step": max(1, prompts * each // size)}
        placed["sampling"] = sampling
    return warmed_up(placed)


def _on_pairs(recipe: Mapping[str, Json], base: Mapping[str, Json]) -> dict[str, Json]:
    own, pairs = _part(recipe, "budget"), _part(recipe, "pairs")
    shared = {name: value for name, value in _part(base, "budget").items() if name in own and name in MEASURED_BY}
    placed = {**recipe, "model": base["model"], "budget": {**own, **shared}}
    if _part(recipe, "model").get("source") != _part(base, "model").get("source"):
        placed["optimizer"] = base["optimizer"]
    if pairs.get("kind") == "sampled":
        decoding = {name: value for name, value in _part(base, "sampling").items() if name in Decoding.model_fields}
        placed["pairs"] = {**pairs, "task": base["task"], "rewards": base["rewards"], "decoding": decoding}
    return placed


def seeded(config: Mapping[str, Json], seed: int) -> dict[str, Json]:
    """The configuration with another seed."""
    return {**config, "budget": {**_part(config, "budget"), "seed": seed}}


def sweep_of(recipes: Sequence[RecipeCard], base: Mapping[str, Json], seeds: Sequence[int]) -> list[dict[str, Json]]:
    """A run's body for each seed and recipe, all recipes of a seed before the next: what is done so far is comparable."""
    return over_seeds([(card.id, on_common_ground(card.config, base)) for card in recipes], seeds)


def over_seeds(named: Sequence[tuple[str, Mapping[str, Json]]], seeds: Sequence[int]) -> list[dict[str, Json]]:
    """A run's body for each seed and named configuration, all of a seed before the next."""
    return [
        {"name": f"{name}, seed {seed}", "config": seeded(config, seed)} for seed in seeds for name, config in named
    ]


def _said(recipe: Mapping[str, Json], part: str, default: Optimizer | Sampling) -> dict[str, Json]:
    silent = default.model_dump(mode="json")
    return {name: value for name, value in _part(recipe, part).items() if value != silent.get(name)}


def warmed_up(config: dict[str, Json]) -> dict[str, Json]:
    """The configuration with a warm-up that fits into its steps."""
    optimizer, steps = _part(config, "optimizer"), _part(config, "budget").get("steps")
    warmup = optimizer.get("warmup_steps")
    if not (isinstance(warmup, int) and isinstance(steps, int)) or warmup <= steps:
        return config
    return {**config, "optimizer": {**optimizer, "warmup_steps": steps // 10}}


def _part(config: Mapping[str, Json], name: str) -> dict[str, Json]:
    part = config.get(name)
    return part if isinstance(part, dict) else {}
