"""Hints about a run's health: never verdicts, always with the rule and the numbers that fired it."""

from typing import Literal

from backend.contract.base import Count, Record
from backend.contract.groups import FinishReason, GroupState
from backend.contract.records import Page


class Evidence(Record):
    """The groups or completions behind a hint, as the lists filter them; None does not filter."""

    from_step: Count
    to_step: Count
    step: Count | None = None  # of those, the one that shows it best and has groups to open; None: there are none
    state: GroupState | None = None
    finish_reason: FinishReason | None = None
    metrics: list[str] = []  # whose curves show it


class Hint(Record):
    """Something unusual (a warning), or something usual that looks unusual (a note). Complete in itself.

    `numbers` are those that the rule compared, by name, as they were measured.
    """

    code: str
    level: Literal["note", "warning"]
    title: str
    rule: str
    measured: str
    advice: str
    numbers: dict[str, float] = {}
    evidence: Evidence | None = None


class CheckedRule(Record):
    """A rule that was held against the run. `missing` says what it lacked; None: it was checked, whether it fired or not."""

    code: str
    title: str
    rule: str
    missing: str | None = None


class Health(Page[Hint]):
    """What looks unusual in a run, warnings first, and every rule that was looked at."""

    checked: list[CheckedRule]

    @property
    def warnings(self) -> list[Hint]:
        """The hints that ask for something to be done."""
        return [hint for hint in self.items if hint.level == "warning"]
