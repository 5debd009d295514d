"""What a rule is, what it finds, and how its sentences write numbers."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from backend.contract.groups import FinishReason, GroupState
from backend.contract.health import CheckedRule, Evidence, Hint
from backend.health.facts import ENOUGH, Facts

Level = Literal["note", "warning"]

_OLDER = "If they have broken down, start again from an earlier checkpoint with a lower learning rate"
ELSEWHERE = {
    "worker_silent": "See whether the program and its machine are alive, and whether it reaches this server. What it records "
    "meanwhile waits on its disk, and `groupscope sync` sends it.",
    "worker_lost": "A killed process (out of memory), a machine that slept or a broken network are the usual causes: see the "
    "program's own log.",
    "gradient_explodes": "Look at the groups of the largest: long, broken texts or odd rewards are the usual cause. If it goes "
    "on, start again from an earlier checkpoint with a lower learning rate.",
    "kl_blow_up": f"So far from its start a model often loses its language. Read some completions. {_OLDER} or a larger β.",
    "entropy_collapse": "All completions of a group become alike, and the groups die. Start again from a checkpoint before the "
    "fall with a lower learning rate, or with more weight on the entropy.",
    "all_rewards_zero": f"Open a group and read what the model answers. {_OLDER}. If it is right, see why the reward function "
    "gives 0. If it is wrong, start with easier prompts.",
    "dead_groups": "What helps: larger groups, which differ more often, or prompts of middling difficulty.",
    "truncation": "Let completions be longer, or ask for shorter answers. If texts run on without sense, look at entropy and KL.",
    "unscored": "Open one of them, and see in the trainer's log why the reward function gave no number.",
    "length_drift": "Read completions from both ends of the run: what they add or leave out is what the reward allows.",
    "component_dominates": "The run learns it and hardly anything else: lower its weight, or bring the scores to one scale.",
    "near_ties": "If such small differences say little, take an estimator that does not divide by the group's std.",
    "sampling_mismatch": "The update treats tokens that another policy drew as if the policy had drawn them itself. See whether "
    "the engine that samples has the same weights, dtype, tokenizer and temperature.",
}
"""By rule, the advice on a run that another program trains: it takes nothing of that run's settings for known."""


@dataclass(frozen=True)
class Finding:
    """Why a rule fired: what was measured, and what to do. `title` and `level` replace the rule's own."""

    measured: str
    advice: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    evidence: Evidence | None = None
    level: Level | None = None
    title: str | None = None


Check = Callable[[Facts], Finding | None]


@dataclass(frozen=True)
class Rule:
    """A condition in words, and the function that checks it. Unless its metrics cover this many `steps`, it keeps silent."""

    code: str
    title: str
    words: str
    check: Check
    metrics: tuple[str, ...]
    steps: int
    level: Level

    def missing(self, facts: Facts) -> str | None:
        """What it lacks to be checked; None if it lacks nothing."""
        if self.metrics and facts.step < self.steps:
            return f"needs {self.steps} steps"
        unknown = [name for name in self.metrics if len(facts.history.get(name, ())) < self.steps]
        return f"{' and '.join(unknown)} not logged" if unknown else None

    def checked(self, facts: Facts) -> CheckedRule:
        """The rule, and whether this run could be checked by it."""
        return CheckedRule(code=self.code, title=self.title, rule=self.words, missing=self.missing(facts))

    def hint(self, facts: Facts) -> Hint | None:
        """What it says about a run; None if it is silent."""
        found = None if self.missing(facts) else self.check(facts)
        if found is None:
            return None
        level = found.level or self.level
        advice = ELSEWHERE.get(self.code, found.advice) if facts.recorded and level == "warning" else found.advice
        return Hint(
            code=self.code,
            level=level,
            title=found.title or self.title,
            rule=self.words,
            measured=found.measured,
            advice=advice,
            numbers=dict(found.numbers),
            evidence=found.evidence,
        )


def rule(
    title: str, words: str, *metrics: str, steps: int = ENOUGH, level: Level = "warning"
) -> Callable[[Check], Rule]:
    """Makes a rule of the function that checks it; the function's name is its code."""
    return lambda check: Rule(check.__name__, title, words, check, metrics, steps, level)


def evidence(
    steps: Iterable[int],
    *metrics: str,
    step: int | None = None,
    state: GroupState | None = None,
    finish_reason: FinishReason | None = None,
) -> Evidence:
    """Evidence over these steps, of which there must be one."""
    known = list(steps)
    return Evidence(
        from_step=min(known),
        to_step=max(known),
        step=step,
        state=state,
        finish_reason=finish_reason,
        metrics=list(metrics),
    )


def percent(share: float) -> str:
    """62 %; a little is never shown as nothing."""
    return "< 1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def figure(value: float) -> str:
    """Three significant digits: 0.0412, 1.62, 2,310."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.3g}"


def one_of(ways: Mapping[str, bool]) -> str:
    """A, b, or c: of some ways those that make sense in this run."""
    *others, last = [way for way, open_ in ways.items() if open_]
    return f"{', '.join(others)}, or {last}" if others else last


def quoted(text: str, most: int = 100) -> str:
    """A text of a person's or a model's in one line; of a long one the end, where the answer stands."""
    line = " ".join(text.split())
    return f"“{line}”" if len(line) <= most else f"“…{line[-most:]}”"


def rate(value: float) -> str:
    """A learning rate as people write it: 5e-5, 0.001."""
    return f"{value:.3g}".replace("e-0", "e-")


def duration(seconds: float) -> str:
    """A span of time: 0.4 s, 41 s, 12 min, 3.2 h."""
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def span(steps: Iterable[int]) -> str:
    """Step 7; steps 31 to 40."""
    known = list(steps)
    return f"step {known[0]}" if len(known) == 1 else f"steps {min(known)} to {max(known)}"
