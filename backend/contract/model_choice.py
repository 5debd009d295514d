"""Models that a run can begin with: how large each is, whether it fits, and settings to start with."""

from typing import Literal

from backend.contract.base import Json, Record

Place = Literal["builtin", "local", "checkpoint", "hub"]


class ModelChoice(Record):
    """A model, what a configuration's settings need with it, and the workers that are up and can open it.

    `fits` of them have the memory and `too_small` do not; those whose memory is not known are in neither. `note` says what else
    there is to know.
    """

    source: str
    place: Place
    title: str
    parameters: int | None = None
    memory_bytes: int | None = None
    workers: int = 0
    fits: int = 0
    too_small: int = 0
    note: str = ""
    usable: bool = True


class StartingValue(Record):
    """A value for a field, and why."""

    field: str
    value: Json
    reason: str


class StartingSettings(Record):
    """Values to start with, for all the weights or for adapters, and what they need on the roomiest worker."""

    title: str
    values: list[StartingValue]
    memory_bytes: int
    fits: bool | None = None
    advised: bool = False


class Models(Record):
    """The models to choose from, the chosen one among them, and settings to start it with; none for a model of unknown shape."""

    items: list[ModelChoice]
    starting: list[StartingSettings] = []
