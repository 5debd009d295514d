"""The checkpoints that a configuration names: the model's, and those of its reward models."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sqlalchemy import Connection, RowMapping

from backend.checkpoints import store
from backend.contract import protocol as p
from backend.contract.base import Json
from backend.contract.model import checkpoint_of
from backend.errors import Invalid
from backend.field_errors import FieldError
from backend.runs.rewards import reward_model_sources

Find = Callable[[Connection, int, int, str], RowMapping]


def store_of(tx: Connection, config: Mapping[str, Json]) -> str | None:
    """The store that all of them lie in; None where the configuration names none.

    Raises Invalid where one is not there or not of its kind, and where no single worker could reach all of them.
    """
    found: str | None = None
    errors: list[FieldError] = []
    for field, row in _rows(tx, config, errors):
        lies = str(row["store"])
        if found is not None and lies != found:
            text = (
                f"this checkpoint lies in the store {lies} and the run's other one in {found}: no worker reaches both"
            )
            errors.append(FieldError(field, text))
        found = found or lies
    if errors:
        raise Invalid(*errors)
    return found


def reward_references(tx: Connection, config: Mapping[str, Json]) -> dict[str, p.CheckpointRef]:
    """What a worker needs to open the reward models, by their source; one that is gone is left out."""
    references = {}
    for _, source in reward_model_sources(config):
        named = checkpoint_of(source)
        row = store.live_at(tx, *named) if named else None
        if row is not None:
            references[source] = store.reference(row)
    return references


def _rows(tx: Connection, config: Mapping[str, Json], errors: list[FieldError]) -> Iterator[tuple[str, RowMapping]]:
    model: Any = config["model"]
    sources: list[tuple[str, str, Find]] = [("model.source", model["source"], store.policy_at)]
    sources += [(field, source, store.reward_model_at) for field, source in reward_model_sources(config)]
    for field, source, find in sources:
        named = checkpoint_of(source)
        if named is not None:
            try:
                yield field, find(tx, *named, field)
            except Invalid as invalid:
                errors += invalid.errors
