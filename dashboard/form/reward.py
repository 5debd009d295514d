"""A run that is rewarded by a model which another run trained."""

from backend.contract.base import Json
from backend.contract.catalog import RecipeCard
from backend.contract.records import Run
from dashboard.form.paths import get, put


def rewarded_by(run: Run, step: int, recipe: RecipeCard) -> dict[str, Json]:
    """The recipe's algorithm on the model, task and decoding that the reward model's pairs came from.

    The reward model is the only reward; correctness, where the pairs were decided by it, is measured beside it.
    """
    source = f"run:{run.id}@{step}"
    learned: dict[str, Json] = {"kind": "reward_model", "name": "reward-model", "weight": 1.0, "source": source}
    functions: list[Json] = [learned]
    config: Json = recipe.config
    pairs = get(run.config, "pairs")
    if get(pairs, "kind") == "sampled":
        config = put(config, "model.source", get(run.config, "model.source"))
        config = put(config, "task", get(pairs, "task"))
        sampling, decoding = get(config, "sampling"), get(pairs, "decoding")
        if isinstance(sampling, dict) and isinstance(decoding, dict):
            config = put(config, "sampling", {**sampling, **decoding})
        scored = get(pairs, "rewards.functions")
        for function in scored if isinstance(scored, list) else []:
            if isinstance(function, dict) and function.get("kind") == "correctness":
                functions.append({**function, "weight": 0.0})
    config = put(put(config, "rewards.functions", functions), "rewards.gates", [])
    if not isinstance(config, dict):
        raise TypeError("a configuration is an object")
    return config
