"""How a group's rewards became its advantages, number by number, from what was stored."""

from collections.abc import Mapping
from dataclasses import dataclass

from backend.contract.base import Json
from backend.contract.records import CompletionRecord, Group, RewardScore
from dashboard.components.stored import number_at, text_at
from dashboard.form.paths import get


@dataclass(frozen=True)
class Estimator:
    """The advantage settings that the run was stored with."""

    kind: str
    std: str
    eps: float

    @property
    def divides(self) -> bool:
        """Whether the deviation is divided by the group's standard deviation."""
        return self.kind == "group_zscore"


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


def spell_term(term: Term) -> str:
    """1 × 0.9, or why it counts for nothing."""
    if term.score.raw is None and term.shut_by is None:
        return "not scored"
    raw = "not scored" if term.score.raw is None else exact(term.score.raw)
    product = f"{raw} × {exact(term.score.weight)}"
    return f"{product} → 0 ({term.shut_by} too low)" if term.shut_by else product


def spell_total(completion: CompletionRecord, config: Mapping[str, Json]) -> str:
    """1 × 0.9 + 1 × 0.1 = 1."""
    parts = [spell_term(term) for term in terms(completion, config)]
    return f"{' + '.join(parts)} = {exact(completion.reward)}" if parts else exact(completion.reward)


def spell_advantage(completion: CompletionRecord, group: Group, how: Estimator) -> str:
    """(1 − 0.625) / (0.484123 + 1e-08) = +0.774597, as the run computed it."""
    if completion.reward is None:
        return "not scored: it moves neither the mean nor the policy"
    if completion.advantage is None:
        return "not trained on"
    if group.reward_mean is None:
        return f"{exact(completion.advantage, sign=True)}"
    if group.state == "zero_variance":
        return f"{exact(completion.reward)} − {exact(group.reward_mean)} = 0: all rewards are equal"
    deviation = f"{exact(completion.reward)} − {exact(group.reward_mean)}"
    if not how.divides:
        return f"{deviation} = {exact(completion.advantage, sign=True)}"
    return f"({deviation}) / ({exact(group.reward_std)} + {how.eps:g}) = {exact(completion.advantage, sign=True)}"


def formula(group: Group, how: Estimator) -> str:
    """The estimator with this group's numbers in it."""
    if group.reward_mean is None:
        return "no advantage: fewer than two completions were scored"
    mean = exact(group.reward_mean)
    if not how.divides:
        return f"advantage = reward − {mean}"
    return f"advantage = (reward − {mean}) / ({exact(group.reward_std)} + {how.eps:g})"


def extremes(group: Group) -> dict[int, str]:
    """Completion index -> best or worst, by reward, the first of equals; none where all are alike."""
    scored = [
        (completion.reward, completion.index) for completion in group.completions if completion.reward is not None
    ]
    if not scored or max(scored)[0] == min(scored)[0]:
        return {}
    best, worst = max(reward for reward, _ in scored), min(reward for reward, _ in scored)
    return {
        next(index for reward, index in scored if reward == best): "best",
        next(index for reward, index in scored if reward == worst): "worst",
    }


def exact(value: float | None, *, sign: bool = False) -> str:
    """Six significant digits: enough to follow the arithmetic by hand."""
    if value is None:
        return "–"
    text = f"{value:.6g}".replace("-", "−")
    return f"+{text}" if sign and value > 0 else text
