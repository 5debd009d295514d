"""What a rule is, and what it finds."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from backend.contract.groups import FinishReason, GroupState
from backend.contract.health import CheckedRule, Evidence, Hint
from backend.health.facts import ENOUGH, Facts

Level = Literal["note", "warning"]


@dataclass(frozen=True)
class Finding:
    """Why a rule fired: what was measured, and what to do. `title` and `level` where they are not the rule's own."""

    measured: str
    advice: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    evidence: Evidence | None = None
    level: Level = "warning"
    title: str | None = None


@dataclass(frozen=True)
class Rule:
    """A condition in words, and the function that checks it. Without its metrics over so many `steps` it keeps silent."""

    code: str
    title: str
    words: str
    check: Callable[[Facts], Finding | None]
    metrics: tuple[str, ...] = ()
    steps: int = ENOUGH

    def missing(self, facts: Facts) -> str | None:
        """What it lacks to be checked, if it lacks something."""
        if self.metrics and facts.step < self.steps:
            return f"needs {self.steps} steps"
        unknown = [name for name in self.metrics if len(facts.history.get(name, ())) < self.steps]
        return f"{' and '.join(unknown)} not logged" if unknown else None

    def checked(self, facts: Facts) -> CheckedRule:
        """The rule, as it was held against a run."""
        return CheckedRule(code=self.code, title=self.title, rule=self.words, missing=self.missing(facts))

    def hint(self, facts: Facts) -> Hint | None:
        """What it says about a run; None where it is silent."""
        found = None if self.missing(facts) else self.check(facts)
        if found is None:
            return None
        return Hint(
            code=self.code,
            level=found.level,
            title=found.title or self.title,
            rule=self.words,
            measured=found.measured,
            advice=found.advice,
            numbers=dict(found.numbers),
            evidence=found.evidence,
        )


def evidence(
    steps: Iterable[int],
    *metrics: str,
    step: int | None = None,
    state: GroupState | None = None,
    finish_reason: FinishReason | None = None,
) -> Evidence:
    """Evidence over these steps; there must be one."""
    known = list(steps)
    return Evidence(
        from_step=min(known),
        to_step=max(known),
        step=step,
        state=state,
        finish_reason=finish_reason,
        metrics=list(metrics),
    )
