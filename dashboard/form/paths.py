"""Places in a configuration, by dotted path: `rewards.functions.0.weight`."""

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
