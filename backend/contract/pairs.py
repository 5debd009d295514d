"""The preference pairs that a run was trained on, as its steps drew them."""

from typing import Annotated

from pydantic import Field

from backend.contract.base import Count, LongText, Record, ShortText

RECORDED = 16
"""Pairs of a step that are kept: the first ones, and the order is drawn at random."""


class PairReport(Record):
    """A pair that a step trained on. `margin` is by how much the model preferred the chosen completion before the update.

    DPO: β times the difference of the two log-ratios to the reference. A reward model: the difference of the two rewards.
    """

    index: Count
    prompt_id: ShortText
    prompt: LongText
    chosen: LongText
    rejected: LongText
    margin: float | None = None


class PairRecord(PairReport):
    """A stored pair, with the step that drew it."""

    step: Count


RecordedPairs = Annotated[list[PairReport], Field(max_length=RECORDED)]
