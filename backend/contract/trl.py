"""TRL's settings in this program's terms. Names and defaults are those of GRPOConfig in TRL 1.16."""

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from backend.contract.advantage import Advantage
from backend.contract.base import Json
from backend.contract.surrogate import Surrogate

_EPS = 1e-4  # added to every standard deviation


def in_our_terms(theirs: Mapping[str, Json]) -> dict[str, Json]:
    """What of a GRPOConfig has a place in RecordedConfig; None where there is no word for it here."""
    size, batch = theirs.get("num_generations"), theirs.get("generation_batch_size")
    prompts = batch // size if isinstance(batch, int) and isinstance(size, int) and size else None
    steps = theirs.get("max_steps")
    return {
        "sampling": {
            "group_size": size,
            "prompts_per_step": prompts,
            "max_new_tokens": theirs.get("max_completion_length"),
            "temperature": theirs.get("temperature"),
            "top_p": theirs.get("top_p"),
        },
        "algorithm": {
            "advantage": _known(Advantage, _advantage(theirs)),
            "surrogate": _known(Surrogate, _surrogate(theirs)),
            "kl": {"beta": theirs.get("beta") or 0.0},
            "updates_per_batch": theirs.get("num_iterations"),
        },
        "budget": {"steps": steps if isinstance(steps, int) and steps > 0 else None},
    }


def _known(kind: Any, settings: dict[str, Json] | None) -> dict[str, Json] | None:
    """The settings, if they are within the bounds that they have here."""
    try:
        TypeAdapter(kind).validate_python(settings)
    except ValidationError:
        return None
    return settings


def _advantage(theirs: Mapping[str, Json]) -> dict[str, Json] | None:
    if theirs.get("multi_objective_aggregation", "sum_then_normalize") != "sum_then_normalize":
        return {"kind": "normalize_then_sum", "eps": _EPS}
    ways: dict[str, dict[str, Json]] = {
        "group": {"kind": "group_zscore", "std": "sample", "eps": _EPS},
        "batch": {"kind": "batch_std", "eps": _EPS},
        "none": {"kind": "group_center"},
    }
    return ways.get(str(theirs.get("scale_rewards", "group")))


def _surrogate(theirs: Mapping[str, Json]) -> dict[str, Json] | None:
    low, high = theirs.get("epsilon", 0.2), theirs.get("epsilon_high")
    high = low if high is None else high
    match theirs.get("loss_type", "dapo"):
        case "grpo" | "bnpo" | "dr_grpo" | "dapo" | "luspo":
            return {"kind": "clip", "epsilon_low": low, "epsilon_high": high, "delta": theirs.get("delta")}
        case "cispo":
            return {"kind": "cispo", "cap": high}
        case "sapo":
            names = {"tau_positive": "sapo_temperature_pos", "tau_negative": "sapo_temperature_neg"}
        case "vespo":
            signs = {"positive": "pos", "negative": "neg"}
            names = {
                f"{one}_{sign}": f"vespo_{one}_{short}" for one in ("k", "lambda") for sign, short in signs.items()
            }
        case _:
            return None
    return {"kind": str(theirs["loss_type"]), **{ours: theirs[name] for ours, name in names.items() if name in theirs}}
