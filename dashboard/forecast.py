"""From sampled groups to the success rate and the dead groups to expect. Pure."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from backend.contract.base import Json
from backend.contract.groups import CompletionNumbers, Group
from backend.contract.inspection import GroupScores
from backend.contract.preflight import dead_share_at_rate
from dashboard.algorithm.estimators import stored_estimator
from dashboard.charts.dead_forecast import Share
from dashboard.stored import highest_reward, reward_functions, text_at
from worker.algorithms.dead_groups import Counts, dead_share

ENOUGH = 16  # scored completions of a prompt
SIZES = range(2, ENOUGH + 1)
ROUNDING = 1e-6
_DECIMALS = 12  # of rewards that count as equal
TOLD_APART = 0.005  # a difference between two shares that is worth a sentence


@dataclass(frozen=True)
class Forecast:
    """The success rate of the prompts with enough scored completions, and the shares by group size."""

    rates_P: Sequence[float]
    left_out: int  # prompts with too few scored completions
    shares: Sequence[Share]

    @property
    def rate(self) -> float:
        """The mean over the prompts."""
        return sum(self.rates_P) / len(self.rates_P)

    @property
    def mean_rate_is_too_low(self) -> bool:
        """Whether prompts differ by so much that the formula at their mean rate forecasts too few dead groups."""
        return any(share.right_or_wrong - share.at_mean_rate > TOLD_APART for share in self.shares)

    @property
    def depends_on_rewards(self) -> bool:
        """Whether other groups are dead than those that are all right or all wrong."""
        return any(share.differs for share in self.shares)

    def at(self, group_size: int) -> Share | None:
        """The share at a size; None where it was not forecast."""
        return next((share for share in self.shares if share.group_size == group_size), None)


def says_right(config: Mapping[str, Json]) -> bool:
    """Whether a reward decides what is right; else a reward that is high enough counts."""
    return any(function.get("kind") == "correctness" for function in reward_functions(config))


def is_right(completion: CompletionNumbers, config: Mapping[str, Json], threshold: float | None = None) -> bool | None:
    """Whether every correctness reward is 1, as an evaluation counts it; None where one could not score the completion.

    Without such a reward: whether the whole reward reaches `threshold`, by default the most that a completion can get.
    """
    names = {text_at(one, "name") for one in reward_functions(config) if one.get("kind") == "correctness"}
    if not names:
        least = highest_reward(config) if threshold is None else threshold
        return None if completion.reward is None else completion.reward >= least - ROUNDING
    raws = [score.raw for score in completion.rewards if score.name in names]
    return None if None in raws else all(raw == 1 for raw in raws)


def forecast(
    groups: Sequence[Group | GroupScores], config: Mapping[str, Json], own_size: int, threshold: float | None = None
) -> Forecast | None:
    """For G = 2 to 16, and the form's own size where enough was sampled; None where no prompt has enough scored completions."""
    known = [
        [one for one in group.completions if one.reward is not None and is_right(one, config, threshold) is not None]
        for group in groups
    ]
    enough = [completions for completions in known if len(completions) >= ENOUGH]
    if not enough:
        return None
    right_P: list[Counts] = []
    for completions in enough:
        right = sum(is_right(one, config, threshold) is True for one in completions)
        right_P.append((right, len(completions) - right))
    equal_P = [list(Counter(_outcome(one, config) for one in completions).values()) for completions in enough]
    rates_P = [counts[0] / sum(counts) for counts in right_P]
    rate = sum(rates_P) / len(rates_P)
    sizes = sorted({*SIZES, own_size} if 2 <= own_size <= min(map(len, enough)) else SIZES)
    shares = [
        Share(size, dead_share(equal_P, size), dead_share(right_P, size), dead_share_at_rate(rate, size))
        for size in sizes
    ]
    return Forecast(rates_P, len(groups) - len(enough), shares)


def _outcome(completion: CompletionNumbers, config: Mapping[str, Json]) -> Hashable:
    """What must differ by more than rounding for the estimator to tell two completions apart."""
    if stored_estimator(config).reads == "components":
        return tuple(
            None if score.raw is None else round(score.raw, _DECIMALS)
            for score in completion.rewards
            if score.weight != 0
        )
    return None if completion.reward is None else round(completion.reward, _DECIMALS)
