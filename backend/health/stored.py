"""Reading a stored configuration as it is: an older or newer version may have written it, so any field may be absent."""

from collections.abc import Mapping

from backend.contract.base import Json
from backend.contract.reward_bound import BOUNDED


def at(config: Mapping[str, Json], path: str) -> Json:
    """What stands at a dotted path; None where nothing does."""
    here: Json = dict(config)
    for name in path.split("."):
        here = here.get(name) if isinstance(here, dict) else None
    return here


def number(config: Mapping[str, Json], path: str, default: float) -> float:
    """The number at a path, or the default."""
    value = at(config, path)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else default


def text(config: Mapping[str, Json], path: str) -> str:
    """The text at a path, or none."""
    value = at(config, path)
    return value if isinstance(value, str) else ""


def weights(config: Mapping[str, Json]) -> dict[str, float]:
    """The weight of each reward function that has one, by name."""
    named = ((text(one, "name"), number(one, "weight", 1.0)) for one in _functions(config))
    return {name: weight for name, weight in named if name and weight}


def bounded(config: Mapping[str, Json], name: str) -> bool:
    """Whether the reward function's raw score lies between 0 and 1."""
    return any(text(one, "name") == name and text(one, "kind") in BOUNDED for one in _functions(config))


def _functions(config: Mapping[str, Json]) -> list[dict[str, Json]]:
    functions = at(config, "rewards.functions")
    return [one for one in functions if isinstance(one, dict)] if isinstance(functions, list) else []
