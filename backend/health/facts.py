"""The facts about a run that the rules of health read; no rule asks the database."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, median_high, median_low

from backend.contract.advantage import ESTIMATORS, Estimator
from backend.contract.base import Json
from backend.contract.config import RECORDED
from backend.contract.groups import GroupState
from backend.contract.reward import BOUNDED, reward_bound
from backend.contract.stored import get, number_at, reward_functions, text_at

RECENT = 10  # steps that "now" means
HISTORY = 50  # steps that are read, the recent ones included
ZEROS = 3  # steps: what was always 0 in as many is worth a word
ENOUGH = 5  # steps without which most rules keep silent: the first ones say little

SOLVED = 0.9  # of the highest reward: little is left to learn
HIGHEST = "of the highest possible (if none is known, of right answers)"
"""What a share is of, in the words of the rules that ask whether a run has `solved` its task."""


@dataclass(frozen=True)
class Stretch:
    """A metric by step, ascending; None if it was not finite. Its figures are those of the finite values."""

    values: Mapping[int, float | None]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def finite(self) -> dict[int, float]:
        """The finite values, by step."""
        return {step: value for step, value in self.values.items() if value is not None}

    @property
    def missing(self) -> list[int]:
        """The steps at which it was logged and not finite."""
        return [step for step, value in self.values.items() if value is None]

    @property
    def mean(self) -> float | None:
        """None without finite values. Computed in fractions: the sum of large floats may be infinite."""
        return mean(finite) if (finite := self.finite.values()) else None

    @property
    def median(self) -> float | None:
        """None without finite values."""
        finite = self.finite.values()
        return mean((median_low(finite), median_high(finite))) if finite else None

    @property
    def peak(self) -> int | None:
        """The step of the highest value, the latest of several."""
        return max(finite, key=lambda step: (finite[step], step)) if (finite := self.finite) else None

    def last(self, count: int) -> "Stretch":
        """Its last points."""
        return Stretch(dict(list(self.values.items())[-count:]))


NOTHING = Stretch({})


@dataclass(frozen=True)
class GroupFact:
    """A group of the recent steps."""

    step: int
    state: GroupState
    reward_mean: float | None
    reward_std: float | None = None


@dataclass(frozen=True)
class ExampleGroup:
    """A group of the newest step, to quote from: its prompt as the model read it, and the completions that a reward scored."""

    step: int
    prompt: str
    answer: str | None
    texts: Sequence[str]
    cut: int  # how many of them reached the token limit


@dataclass(frozen=True)
class OpenPhase:
    """The phase that the worker reports, and for how many seconds it has reported it."""

    name: str
    seconds: float


@dataclass(frozen=True)
class Facts:
    """A run as rules see it. `config` is the stored one: an older or newer version may have written it, so any field may be absent."""

    config: Mapping[str, Json]
    status: str = "running"
    step: int = 0  # steps that are done
    history: Mapping[str, Stretch] = field(default_factory=dict)  # the last HISTORY steps, by metric
    start: Mapping[str, Stretch] = field(default_factory=dict)  # the first RECENT steps
    whole: Mapping[str, Stretch] = field(default_factory=dict)  # of rewards: means over stretches of the whole run
    not_finite: Mapping[str, list[int]] = field(
        default_factory=dict
    )  # by metric, the steps of the last HISTORY at which it was not
    evaluations: Stretch = NOTHING  # pass@1 on held-out prompts, of the whole run
    groups: Sequence[GroupFact] = ()  # of the RECENT steps
    example: ExampleGroup | None = None  # None unless a reward is always 0 and its groups are kept
    phase: OpenPhase | None = None
    silence: float | None = None  # seconds since the worker last reported; None if no worker should report
    lease_seconds: float = 30.0
    lost_attempts: int = 0  # that ended without a report of it

    @property
    def recorded(self) -> bool:
        """Whether another program trains it: what that has not said is not known, and it does not do what a worker does."""
        return self.config.get("kind") == RECORDED

    @property
    def most_grad_norm(self) -> float | None:
        """What a longer gradient is scaled down to; None if it is not known."""
        if self.recorded:
            return self.number("theirs.max_grad_norm", 0.0) or None  # as TRL calls it; 0 limits nothing
        return self.number("optimizer.max_grad_norm", 1.0)

    def recent(self, name: str) -> Stretch:
        """A metric over the last RECENT steps."""
        stretch = self.history.get(name, NOTHING)
        return Stretch({step: value for step, value in stretch.values.items() if step >= self.step - RECENT})

    def began(self, name: str) -> Stretch:
        """A metric over the first RECENT steps, unless one of them is recent."""
        return self.start.get(name, NOTHING) if self.step >= 2 * RECENT else NOTHING

    def solved(self, share: float = SOLVED) -> bool:
        """Whether the recent reward is at least this share of the highest possible; if none is known, whether the share of right answers is.

        Of several correctness rewards each must be: an answer is right if all of them are 1. False if nothing is known.
        """
        highest, reward = reward_bound(self.config), self.recent("reward").mean
        if highest is not None:
            return reward is not None and reward >= share * highest
        right = [self.recent(f"rewards/{name}/mean").mean for name in correctness(self.config)]
        return bool(right) and all(mean is not None and mean >= share for mean in right)

    def risen(self, share: float) -> bool:
        """Whether the reward has risen since the start by at least this share of the std that it had then."""
        before, now, std = self.began("reward").mean, self.recent("reward").mean, self.began("reward_std").mean
        return before is not None and now is not None and now > before and now - before >= share * (std or 0.0)

    def always_zero(self) -> list[str]:
        """The rewards that should pay and scored 0 in the whole run; what says what is right first, then the largest weight."""
        weighing, found = weights(self.config), []
        for name in weighing:
            mean, std = (f"rewards/{name}/{what}" for what in ("mean", "std"))
            series = [of.get(metric, NOTHING).finite for of in (self.history, self.whole) for metric in (mean, std)]
            known = len(series[0]) >= ZEROS and (len(series[1]) >= ZEROS or bounded(self.config, name))
            if weighing[name] > 0 and known and not any(any(values.values()) for values in series):
                found.append(name)
        return sorted(found, key=lambda name: (name not in correctness(self.config), -weighing[name]))

    def has(self, setting: str) -> list[str]:
        """The rewards with a weight that have this setting: `tags`, `patterns` and `ramp` say their kind."""
        return [name for name in weights(self.config) if setting in functions(self.config)[name]]

    def at(self, path: str) -> Json:
        """What the configuration says at a dotted path; None if it says nothing."""
        return get(dict(self.config), path)

    def number(self, path: str, default: float) -> float:
        """The number that the configuration has at a path, or the default."""
        return number_at(self.config, path, default)

    def text(self, path: str) -> str:
        """The text that the configuration has at a path; empty if it has none."""
        return text_at(self.config, path)

    @property
    def estimator(self) -> type[Estimator]:
        """The advantage estimator of the run; one that compares with nothing if its name is not known here."""
        return ESTIMATORS.get(self.text("algorithm.advantage.kind"), ESTIMATORS["none"])


def weights(config: Mapping[str, Json]) -> dict[str, float]:
    """The weight of each reward function that moves the reward, by name."""
    unsaid = 0.0 if config.get("kind") == RECORDED else 1.0  # nothing is said of a reward whose weight is not known
    found = {name: number_at(one, "weight", unsaid) for name, one in functions(config).items()}
    return {name: weight for name, weight in found.items() if weight}


def correctness(config: Mapping[str, Json]) -> list[str]:
    """The names of the reward functions that say what is right, whatever their weight."""
    return [name for name, one in functions(config).items() if one.get("kind") == "correctness"]


def bounded(config: Mapping[str, Json], name: str) -> bool:
    """Whether the reward function's raw score lies between 0 and 1."""
    return functions(config).get(name, {}).get("kind") in BOUNDED


def functions(config: Mapping[str, Json]) -> dict[str, dict[str, Json]]:
    """The reward functions by their names."""
    return {name: one for one in reward_functions(config) if (name := text_at(one, "name"))}
