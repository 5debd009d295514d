"""What the component is given: texts that are safe to draw, and columns of numbers."""

import base64
import math
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TypedDict

import numpy as np

from backend.contract.base import Json
from backend.contract.groups import CompletionRecord, TokenTrace
from dashboard.components.model_text import marked
from dashboard.token_view.columns import Column, columns

FULL_COLOUR = 0.99  # the share of tokens that stay within the full colour, so that an outlier does not pale the others

NOT_TRAINED_ON = (
    "This completion went through no training pass: all advantages of its group are 0, and the loss has no other part, such "
    "as a KL penalty. What is known of its tokens is what the sampler said."
)


class Drawn(TypedDict):
    """A column as it travels: its numbers as base64 of little-endian float32, which is what a trace holds."""

    name: str
    title: str
    about: str
    values: str
    offered: bool
    signed: bool
    middle: float  # where there is no colour
    reach: float  # how far from there it is full; negative where the values of a size are


class View(TypedDict):
    """All that the component is given. Positions count from 0."""

    completion: int
    label: str
    ids: list[int]
    shown: list[str]
    literal: dict[int, str]  # where it is not the one that `shown` implies
    clipped: list[int]
    columns: list[Drawn]
    opens_on: str  # the column that colours the tokens until another is chosen
    note: str


def view_of(trace: TokenTrace, completion: CompletionRecord, config: Mapping[str, Json]) -> View:
    """The view of one completion, from its trace and the configuration that its run was stored with."""
    found = columns(trace, completion, config)
    shown = [_drawable(text, token) for text, token in zip(trace.texts, trace.token_ids, strict=True)]
    return {
        "completion": completion.id,
        "label": f"Tokens of completion {completion.index + 1}",
        "ids": trace.token_ids,
        "shown": shown,
        "literal": {
            place: repr(text) for place, text in enumerate(trace.texts) if repr(text) != _implied(shown[place])
        },
        "clipped": [place for place, cut in enumerate(trace.clipped or []) if cut],
        "columns": [_drawn(column) for column in found],
        "opens_on": _opens_on([column for column in found if column.offered]),
        "note": NOT_TRAINED_ON if trace.logprob is None and completion.advantage == 0 else "",
    }


def _opens_on(offered: Sequence[Column]) -> str:
    """The first column that says more than one number; the first of all where none does, and none where none is offered."""
    telling = (column for column in offered if np.nanmin(column.values_T) < np.nanmax(column.values_T))
    first = next(telling, None) or next(iter(offered), None)
    return first.name if first is not None else ""


def _implied(shown: str) -> str:
    """The literal of most tokens: what is drawn, with spaces for their signs. The script does the same."""
    return f"'{shown.replace('·', ' ')}'"


def _drawn(column: Column) -> Drawn:
    return {
        "name": column.name,
        "title": column.title,
        "about": column.about,
        "values": base64.b64encode(column.values_T.astype("<f4").tobytes()).decode("ascii"),
        "offered": column.offered,
        "signed": column.colouring == "signed",
        "middle": column.middle,
        "reach": _reach(column),
    }


def _reach(column: Column) -> float:
    """How far from its middle a value has the full colour."""
    known = column.values_T[~np.isnan(column.values_T)]
    away = np.sort(np.abs(known - column.middle))
    reach = float(away[math.ceil(FULL_COLOUR * len(away)) - 1])
    return -reach if column.colouring == "size" and known.min() < 0 else reach


def _drawable(text: str, token: int) -> str:
    """The token with a sign for whatever is not seen by itself; one without a text is shown by its id."""
    if not text:
        return f"⟨{token}⟩"
    combines = unicodedata.category(text[0]).startswith("M")
    return ("◌" if combines else "") + marked(text)
