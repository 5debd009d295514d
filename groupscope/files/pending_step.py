"""A step that files have, as far as it is not sent."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import fmean, pstdev

from backend.contract import protocol as p
from backend.contract.groups import GroupReport
from groupscope.files.format import Step, number
from groupscope.recording import LONGEST_NAME, Group, group_report
from groupscope.tokens import MEASURED, Tokens, trace_of

OF_REWARDS = ("reward", "reward_std", "frac_reward_zero_std")  # metrics that are made of the groups' rewards
MOST_METRICS = p.MOST_METRICS - 100  # of a step's own; some get a second name


@dataclass
class PendingStep:
    """What is known of a step, and its groups that wait to be sent."""

    step: int
    group_hashes: list[int] = field(default_factory=list)  # with those that were sent; another one if a group grew
    completions: int = 0
    values: int = 0  # advantages of these, and kinds of token values
    waiting: list[tuple[int, Group]] = field(default_factory=list)  # by index
    size: int = 0  # characters of these
    metrics: dict[str, float | None] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)
    seconds: float | None = None
    open: bool = False
    totals: list[list[float]] = field(default_factory=list)  # of each group that was trained on, those that it has

    @property
    def counts(self) -> tuple[int, ...]:
        """The step, and how much of it there is: others once anything came to it."""
        return self.step, len(self.group_hashes), self.completions, len(self.metrics), len(self.unreadable), self.values

    def add(self, piece: Step, sent: int) -> None:
        """A piece of the step, of whose groups the first were sent."""
        for name, value in piece.metrics.items():
            if 0 < len(name) <= LONGEST_NAME and (name in self.metrics or len(self.metrics) < MOST_METRICS):
                self.metrics[name] = value
            elif (
                said := f"of more than {MOST_METRICS} metrics in step {self.step}: {name:.99}"
            ) not in self.unreadable:
                self.unreadable.append(said)
        self.unreadable += piece.unreadable
        self.seconds = piece.seconds if piece.seconds is not None else self.seconds
        self.open = piece.open
        for group in piece.groups:
            if len(self.group_hashes) >= sent:
                self.waiting.append((len(self.group_hashes), group))
                self.size += sum(len(one.text) + sum(len(turn.text) for turn in one.turns) for one in group.completions)
            self.group_hashes.append(hash((group.prompt, group.evaluated, len(group.completions))))
            self.completions += len(group.completions)
            known = sum(getattr(one.tokens, name, None) is not None for one in group.completions for name in MEASURED)
            self.values += known + sum(one.advantage is not None for one in group.completions)
            if not group.evaluated:
                self.totals.append([value for one in group.completions if (value := number(one.reward)) is not None])

    def of_rewards(self) -> dict[str, float | None]:
        """What the groups' rewards say of the step, under TRL's names; nothing if no total is known."""
        known = [value for totals in self.totals for value in totals]
        several = [totals for totals in self.totals if len(totals) > 1]
        if not known or not several:
            return {}
        dead = sum(len(set(totals)) == 1 for totals in several) / len(several)
        with suppress(OverflowError):  # of rewards that stand for minus infinity
            return dict(zip(OF_REWARDS, (fmean(known), pstdev(known), dead), strict=True))
        return {}

    def reports(self, weights: Mapping[str, float | None]) -> tuple[list[GroupReport], p.TraceFile | None, list[str]]:
        """The groups that wait as the protocol has them, the values of their tokens, and a sentence for each that is left out."""
        groups: list[GroupReport] = []
        tokens: list[list[Tokens | None]] = [[] for _ in self.group_hashes]  # by the group's index
        left_out: list[str] = []
        for index, group in self.waiting:
            try:
                checked = [None if one.tokens is None else one.tokens.checked() for one in group.completions]
                groups.append(group_report(index, group, checked, weights))
                tokens[index] = checked
            except Exception as error:  # noqa: BLE001 — whatever a file says, its other groups are kept
                left_out.append(f"group {index} of step {self.step}: {error}")
        try:
            return groups, trace_of(tokens), left_out
        except Exception as error:  # noqa: BLE001 — the groups count without the values of their tokens
            return groups, None, [*left_out, f"token values of step {self.step}: {error}"]
