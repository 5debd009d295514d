"""How answers are read: a version that is stored with each run, so that one that began keeps its own for ever."""

from typing import Annotated

from pydantic import Field

READING = "reading"
"""The field's name. No form has it: it is written when a run is submitted."""

FIRST, NEWEST = 1, 2
Reading = Annotated[
    Annotated[int, Field(ge=FIRST, le=NEWEST)] | None,
    Field(
        description="How answers are read. Leave it out: the newest way is written down when a run is submitted.",
        exclude_if=lambda reading: reading is None,
    ),
]
"""1: answers as they stand. 2: as a person reads them (docs/rewards.md).

A stored configuration without it is from before there were two ways, and is read in the first.
"""
