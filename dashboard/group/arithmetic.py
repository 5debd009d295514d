"""How a group's rewards became its advantages, number by number, from what was stored."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from backend.contract.base import Json
from backend.contract.groups import CompletionRecord, Group, RewardScore
from dashboard.components.stored import number_at, text_at
from dashboard.form.paths import get
from worker.algorithms.advantages import group_statistics

DIGITS = 6  # significant ones


@dataclass(frozen=True)
class Estimator:
    """The advantage settings that the run was stored with."""

    kind: str
    std: str
    eps: float

    @property
    def divides(self) -> bool:
        """Whether the deviation is divided by a standard deviation, of the group or of the batch."""
        return self.kind in ("group_zscore", "batch_std")

    @property
    def centred(self) -> bool:
        """Whether completions are only compared with each other: equal rewards then give advantages of exactly 0."""
        return self.kind not in ("softmax", "batch_baseline", "none", "gae")

    @property
    def std_of(self) -> str:
        """Which standard deviation a group's `reward_std` is."""
        return "batch" if self.kind == "batch_std" else self.std if self.kind == "group_zscore" else "population"

    @property
    def mean_of(self) -> str:
        """Which mean a group's `reward_mean` is."""
        return "batch" if self.kind == "batch_baseline" else "group"


@dataclass(frozen=True)
class Term:
    """One reward component's part in the total: raw × weight, or nothing where a gate is shut."""

    score: RewardScore
    shut_by: str | None = None

    @property
    def value(self) -> float | None:
        """What it adds to the total; None where nothing could score it."""
        if self.shut_by is not None:
            return 0.0
        return None if self.score.raw is None else self.score.raw * self.score.weight


def estimator(config: Mapping[str, Json]) -> Estimator:
    """The advantage settings of a stored configuration."""
    return Estimator(
        text_at(config, "algorithm.advantage.kind", "group_zscore"),
        text_at(config, "algorithm.advantage.std", "population"),
        number_at(config, "algorithm.advantage.eps", 1e-8),
    )


def terms(completion: CompletionRecord, config: Mapping[str, Json]) -> list[Term]:
    """The completion's reward components, in their order, with the gates of the stored configuration."""
    raw = {score.name: score.raw for score in completion.rewards}
    gates = get(dict(config), "rewards.gates")
    shut: dict[str, str] = {}
    for gate in gates if isinstance(gates, list) else []:
        if not isinstance(gate, dict):
            continue
        required = raw.get(text_at(gate, "requires"))
        if required is not None and required < number_at(gate, "at_least", 1.0):
            shut[text_at(gate, "reward")] = text_at(gate, "requires")
    return [Term(score, shut.get(score.name)) for score in completion.rewards]


def spell_term(term: Term, *, digits: int = DIGITS) -> str:
    """1 × 0.9, or why it counts for nothing."""
    if term.score.raw is None and term.shut_by is None:
        return "not scored"
    raw = "not scored" if term.score.raw is None else exact(term.score.raw, digits=digits)
    product = f"{raw} × {exact(term.score.weight, digits=digits)}"
    return f"{product} → 0 ({term.shut_by} too low)" if term.shut_by else product


def spell_advantage(completion: CompletionRecord, group: Group, how: Estimator) -> str:
    """(1 − 0.625) / (0.484123 + 1e-08) = +0.774597, as the run computed it."""
    if completion.reward is None:
        return "not scored: it moves neither the mean nor the policy"
    if completion.advantage is None:
        return "not trained on"
    advantage = exact(completion.advantage, sign=True)
    if how.centred and group.state == "unscored":
        return f"{advantage}: fewer than two completions were scored"
    if how.centred and group.state == "zero_variance" and all_equal(group):
        return _spell_equal(completion.reward, group.reward_mean, how)
    spelled = _spell(completion.reward, group, how)
    return f"{spelled} = {advantage}" if spelled else f"{advantage}: {_why(completion.advantage, how)}"


def all_equal(group: Group) -> bool:
    """Whether the scored completions have one reward: a KL penalty in it may differ where the task's rewards do not."""
    return not _differ(completion.reward for completion in group.completions)


def _differ(rewards: Iterable[float | None]) -> bool:
    """Whether two of them differ, as training decides it: by more than rounding."""
    known = np.array([[math.nan if reward is None else reward for reward in rewards]], dtype=np.float64)
    return bool(known.size and group_statistics(known).live_P[0])


_DEVIATIONS = ("group_zscore", "group_center", "batch_std", "leave_one_out", "batch_baseline")


def _spell(reward: float, group: Group, how: Estimator) -> str | None:
    """The left-hand side; None where more went into it than the group's rewards, mean and std."""
    if how.kind == "none":
        return exact(reward)
    if how.kind == "softmax":
        shift, total = _softmax_terms(group)
        return f"e^{_relative(exact(reward), shift)} / {exact(total)}"
    if group.reward_mean is None or how.kind not in _DEVIATIONS:
        return None
    deviation = f"{exact(reward)} − {exact(group.reward_mean)}"
    if how.divides:
        return f"({deviation}) / ({exact(group.reward_std)} + {how.eps:g})"
    return f"({deviation}) × {group.scored} / {group.scored - 1}" if how.kind == "leave_one_out" else deviation


def _why(advantage: float, how: Estimator) -> str:
    if how.kind == "normalize_then_sum":
        return "each reward normalised in its group, weighted, added, and that normalised over the batch"
    if how.kind == "best_worst":
        return "the best of the group" if advantage > 0 else "the worst of the group" if advantage < 0 else "neither"
    return "the mean of its tokens' advantages" if how.kind == "gae" else f"by {how.kind}"


def _spell_equal(reward: float, mean: float | None, how: Estimator) -> str:
    if how.kind == "normalize_then_sum":
        return "0: no reward function tells two completions apart"
    if how.kind == "best_worst":
        return "0: all rewards are equal"
    return f"{exact(reward)} − {exact(mean)} = 0: all rewards are equal"


def formula(group: Group, how: Estimator) -> str:
    """The estimator with this group's numbers in it."""
    if group.state == "filtered":
        return "no advantage: replaced before anything was trained on it"
    if group.state == "probe":
        return "no advantage: a probe is scored and never trained on"
    if group.reward_mean is None or (how.centred and group.state == "unscored"):
        return "no advantage: fewer than two completions were scored"
    mean, eps = exact(group.reward_mean), f"{how.eps:g}"
    match how.kind:
        case "group_zscore":
            return f"advantage = (reward − {mean}) / ({exact(group.reward_std)} + {eps})"
        case "group_center":
            return f"advantage = reward − {mean}"
        case "batch_std":
            return (
                f"advantage = (reward − {mean}) / ({exact(group.reward_std)} + {eps}), the std being the whole batch's"
            )
        case "softmax":
            highest, total = _softmax_terms(group)
            return f"advantage = e^{_relative('reward', highest)} / {exact(total)}, the sum of these over the group"
        case "leave_one_out":
            n = group.scored
            return f"advantage = (reward − {mean}) × {n} / {n - 1}, which is reward − mean of the other {n - 1}"
        case "batch_baseline":
            return f"advantage = reward − {mean}, the mean of the whole batch"
        case "none":
            return "advantage = reward"
        case "normalize_then_sum":
            return (
                f"advantage = Σ weight × (reward − mean) / (std + {eps}), each reward function within the group; then the same "
                "once more with that sum, over the whole batch"
            )
        case "best_worst":
            return "advantage = +1 for the first of the best, −1 for the first of the worst, 0 for all others"
        case "gae":
            return (
                "an advantage for each token, from the value head (GAE); the number of a completion is its tokens' mean"
            )
    return f"advantage by {how.kind}"


def _softmax_terms(group: Group) -> tuple[float, float]:
    """What is taken off every reward so that no exponential overflows (0 if none would), and the sum of e^rewards."""
    rewards = [completion.reward for completion in group.completions if completion.reward is not None]
    highest = max(rewards, default=0.0)
    shift = highest if abs(highest) > 100 else 0.0
    return shift, math.fsum(math.exp(reward - shift) for reward in rewards)


def _relative(text: str, shift: float) -> str:
    return f"({text} − {exact(shift)})" if shift else text


def extremes(group: Group) -> dict[int, str]:
    """Completion index -> best or worst, by reward, the first of equals; none where all are alike."""
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


def exact(value: float | None, *, sign: bool = False, digits: int = DIGITS) -> str:
    """Six significant digits: enough to follow the arithmetic by hand."""
    if value is None:
        return "–"
    text = f"{value:.{digits}g}".replace("-", "−")
    return f"+{text}" if sign and value > 0 else text
