"""Hints about a run's health: never verdicts, always with the rule and the numbers that fired it."""

from typing import Literal

from backend.contract.base import Count, Record
from backend.contract.groups import FinishReason, GroupState


class Evidence(Record):
    """The groups or completions behind a hint, as the lists filter them; None does not filter."""

    from_step: Count
    to_step: Count
    state: GroupState | None = None
    finish_reason: FinishReason | None = None
    metrics: list[str] = []  # whose curves show it


class Hint(Record):
    """Something unusual. `numbers` are those that the rule compared, by name, as they were measured."""

    code: str
    level: Literal["note", "warning"]
    title: str
    rule: str
    measured: str
    advice: str
    numbers: dict[str, float] = {}
    evidence: Evidence | None = None
