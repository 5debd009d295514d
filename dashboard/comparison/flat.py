"""Configurations flat: every leaf by its dotted path, and those in which runs differ."""

from collections.abc import Mapping

from backend.contract.base import Json


def flatten(value: Json, path: str = "") -> dict[str, Json]:
    """Every leaf of a configuration under its dotted path; an empty object or list is a leaf."""
    children: list[tuple[str, Json]] = []
    if isinstance(value, dict):
        children = list(value.items())
    elif isinstance(value, list):
        children = [(str(place), item) for place, item in enumerate(value)]
    if not children:
        return {path: value}
    leaves: dict[str, Json] = {}
    for key, child in children:
        leaves |= flatten(child, f"{path}.{key}" if path else key)
    return leaves


def differences(configs: Mapping[int, Mapping[str, Json]]) -> dict[str, dict[int, Json]]:
    """Path -> value by run, for the paths at which not all runs have the same; absent is None."""
    flat = {run_id: flatten(dict(config)) for run_id, config in configs.items()}
    paths = dict.fromkeys(path for leaves in flat.values() for path in leaves)
    table = {path: {run_id: leaves.get(path) for run_id, leaves in flat.items()} for path in paths}
    return {path: row for path, row in table.items() if len({repr(value) for value in row.values()}) > 1}
