"""A configuration as it was stored: older or newer than this program, so that any field may be absent.

A place in it is a dotted path, such as `rewards.functions.0.weight`.
"""

from collections.abc import Iterator, Mapping

from backend.contract.base import Json


def get(value: Json, path: str) -> Json:
    """What stands at the path; None where nothing does."""
    for part in path.split(".") if path else []:
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


def put(value: Json, path: str, new: Json) -> Json:
    """A copy of the value with `new` at the path; missing objects on the way are made."""
    head, _, rest = path.partition(".")
    if not head:
        return new
    if isinstance(value, list) and head.isdecimal() and int(head) < len(value):
        index = int(head)
        return [*value[:index], put(value[index], rest, new), *value[index + 1 :]]
    known = value if isinstance(value, dict) else {}
    return {**known, head: put(known.get(head), rest, new)}


def number_at(config: Mapping[str, Json], path: str, default: float) -> float:
    """The number at a dotted path, or the default."""
    value = get(dict(config), path)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else default


def text_at(config: Mapping[str, Json], path: str, default: str = "") -> str:
    """The text at a dotted path, or the default."""
    value = get(dict(config), path)
    return value if isinstance(value, str) else default


def reward_functions(config: Mapping[str, Json], path: str = "rewards") -> list[dict[str, Json]]:
    """The reward functions, in their order."""
    functions = get(dict(config), f"{path}.functions")
    return [function for function in functions if isinstance(function, dict)] if isinstance(functions, list) else []


REWARDS = ("rewards", "pairs.rewards")
"""Where a configuration has rewards: of the run itself, or of the pairs that it samples."""


def rewards_in(config: Mapping[str, Json]) -> Iterator[tuple[str, dict[str, Json]]]:
    """The path and the fields of each reward, wherever it stands."""
    for path in REWARDS:
        for index, function in enumerate(reward_functions(config, path)):
            yield f"{path}.functions.{index}", function
