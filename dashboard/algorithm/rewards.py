"""How a completion's reward came about, number by number, from what was stored; and which of a group got the most."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from pydantic import TypeAdapter

from backend.contract.base import Json
from backend.contract.groups import CompletionRecord, Group, RewardScore
from backend.contract.inspection import CompletionScores, GroupScores
from backend.contract.reward import Gate
from dashboard.stored import part
from worker.algorithms.advantages import group_statistics
from worker.algorithms.total_reward import closed_gates

DIGITS = 6  # significant ones
_GATES = TypeAdapter(list[Gate])
AnyGroup: TypeAlias = Group | GroupScores
AnyCompletion: TypeAlias = CompletionRecord | CompletionScores


@dataclass(frozen=True)
class Term:
    """One reward component's part in the total: raw × weight, or nothing if a gate is closed."""

    score: RewardScore
    closed_by: str | None = None
    is_total: bool = False  # the only component, whose raw value is the reward: no weight need be known

    @property
    def value(self) -> float | None:
        """What it adds to the total; None if nothing could score it, or its weight is not known."""
        if self.closed_by is not None:
            return 0.0
        if self.score.raw is None or self.score.weight is None:
            return self.score.raw if self.is_total else None
        return self.score.raw * self.score.weight


def terms(completion: AnyCompletion, config: Mapping[str, Json]) -> list[Term]:
    """The completion's reward components, in their order, with the gates of the stored configuration."""
    gates = part(_GATES, config, "rewards.gates", [])
    closed = closed_gates({score.name: score.raw for score in completion.rewards}, gates)
    is_total = [score.raw for score in completion.rewards] == [completion.reward]
    return [Term(score, closed.get(score.name), is_total) for score in completion.rewards]


def spell_term(term: Term, *, digits: int = DIGITS) -> str:
    """1 × 0.9, or why it counts for nothing."""
    if term.score.raw is None and term.closed_by is None:
        return "not scored"
    raw = "not scored" if term.score.raw is None else exact(term.score.raw, digits=digits)
    if term.score.weight is None:
        return raw if term.is_total else f"{raw}, weight not recorded"
    product = f"{raw} × {exact(term.score.weight, digits=digits)}"
    return f"{product} → 0 ({term.closed_by} too low)" if term.closed_by else product


def all_equal(group: AnyGroup) -> bool:
    """Whether the scored completions have one reward: a KL penalty in it may differ although the task's rewards do not."""
    return not _differ(completion.reward for completion in group.completions)


def extremes(group: AnyGroup) -> dict[int, str]:
    """Completion index -> best or worst, by reward, the first of equals; empty if all rewards are equal."""
    scored = [
        (completion.reward, completion.index) for completion in group.completions if completion.reward is not None
    ]
    if not _differ(reward for reward, _ in scored):
        return {}
    best, worst = max(reward for reward, _ in scored), min(reward for reward, _ in scored)
    return {
        next(index for reward, index in scored if reward == best): "best",
        next(index for reward, index in scored if reward == worst): "worst",
    }


def _differ(rewards: Iterable[float | None]) -> bool:
    """Whether two of them differ, as training decides it: by more than rounding."""
    known = np.array([[math.nan if reward is None else reward for reward in rewards]], dtype=np.float64)
    return bool(known.size and group_statistics(known).live_P[0])


def exact(value: float | None, *, sign: bool = False, digits: int = DIGITS) -> str:
    """Six significant digits: enough to follow the arithmetic by hand."""
    if value is None:
        return "–"
    text = f"{value:.{digits}g}".replace("-", "−")
    return f"+{text}" if sign and value > 0 else text
