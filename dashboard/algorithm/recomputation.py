"""The advantages of a step under other settings, by the very functions that trained the run.

With the run's own settings they are the stored ones, bit for bit: the trainer, too, computes them on numpy, in float64, from
numbers that are all recorded. Arrays are of P groups of G completions, NaN if a number is missing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum, nan

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from backend.contract.advantage import Advantage
from backend.contract.algorithm import Algorithm
from backend.contract.base import Json
from backend.contract.groups import GroupState
from backend.contract.inspection import CompletionScores, GroupScores
from backend.contract.reward import KL_PENALTY, Correctness, RewardFunction, Rewards
from backend.contract.surrogate import Surrogate
from dashboard.stored import get, is_recorded, number_at, reward_functions, text_at
from worker.algorithms.advantages import GroupStatistics, group_state, group_statistics
from worker.algorithms.estimator import Estimate, estimate, live_groups
from worker.algorithms.total_reward import total_reward, with_penalty

Values = NDArray[np.float64]
TRAINED_ON = ("live", "zero_variance", "unscored")
"""The states of groups that stood in the batch: neither replaced before the update, nor probes."""


@dataclass(frozen=True)
class Settings:
    """How rewards become advantages and advantages a loss."""

    advantage: Advantage
    surrogate: Surrogate
    rewards: Rewards | None  # weights and gates; None if the run had no reward functions
    beta: float


@dataclass(frozen=True)
class Own:
    """What the run was stored with."""

    algorithm: Algorithm
    rewards: Rewards | None
    max_new_tokens: int
    surrogate_known: bool = True  # else the algorithm's is a default that stands for nothing
    recorded: bool = (
        False  # by another trainer, which adds up the rewards that are there: a completion without any is unscored
    )

    @property
    def settings(self) -> Settings:
        """The run's values of what may be changed."""
        return Settings(self.algorithm.advantage, self.algorithm.surrogate, self.rewards, self.algorithm.kl.beta)

    @property
    def penalised(self) -> bool:
        """Whether the KL penalty is in the reward, and so moves advantages."""
        return self.measured and self.algorithm.kl.placement == "reward"

    @property
    def measured(self) -> bool:
        """Whether the KL to the reference was measured: with β = 0 there is no penalty, and no pass for it."""
        return not self.recorded and self.algorithm.kl.beta > 0

    @property
    def from_critic(self) -> bool:
        """Whether the advantages came from a learned value of each token, which no reward can replace."""
        return self.algorithm.advantage.reads == "tokens"


def read_own(config: Mapping[str, Json]) -> Own | None:
    """The settings of a stored configuration, defaults if it has none; None if this version cannot read them, or the run's trainer did not
    say how it turns rewards into advantages.
    """
    rewards, algorithm = get(dict(config), "rewards"), get(dict(config), "algorithm")
    most = int(number_at(config, "sampling.max_new_tokens", 1))
    try:
        if is_recorded(config):
            return _of_another_trainer(config, most)
        known = None if rewards is None else Rewards.model_validate(rewards)
        return Own(Algorithm.model_validate(algorithm or {}), known, most)
    except ValidationError:
        return None


def _of_another_trainer(config: Mapping[str, Json], most: int) -> Own | None:
    """What it said. Only the names and weights of its rewards matter here, so any kind of ours can stand for them; if a weight is not known, none does."""
    known = {name: get(dict(config), f"algorithm.{name}") for name in ("advantage", "surrogate")}
    if known["advantage"] is None:
        return None
    algorithm = Algorithm.model_validate({name: value for name, value in known.items() if value is not None})
    each = reward_functions(config)
    rewards = None
    if each and all(get(one, "weight") is not None for one in each):
        functions: list[RewardFunction] = [
            Correctness.model_construct(name=text_at(one, "name"), weight=number_at(one, "weight", 1.0)) for one in each
        ]
        rewards = Rewards.model_construct(functions=functions, gates=[])  # its names and weights have no bounds of ours
    return Own(algorithm, rewards, most, surrogate_known=known["surrogate"] is not None, recorded=True)


@dataclass(frozen=True)
class StepArrays:
    """The groups of a batch, in their order, and their completions' numbers, each (P, G)."""

    groups: Sequence[GroupScores]

    @cached_property
    def rewards_P_G(self) -> Values:
        """The rewards as the estimator used them."""
        return self.of_completions(lambda one: one.reward)

    @cached_property
    def advantages_P_G(self) -> Values:
        """The advantages that trained."""
        return self.of_completions(lambda one: one.advantage)

    @cached_property
    def minus_kl_P_G(self) -> Values:
        """Minus the sum of a completion's KL, if the penalty is in the reward."""
        return self.of_raws(lambda raw: raw.get(KL_PENALTY))

    @cached_property
    def _raws(self) -> list[list[dict[str, float | None]]]:
        """Each completion's raw rewards, by the reward function's name."""
        return [
            [{score.name: score.raw for score in one.rewards} for one in group.completions] for group in self.groups
        ]

    def of_completions(self, value: Callable[[CompletionScores], float | None]) -> Values:
        """A number of each completion, (P, G)."""
        return _padded([[value(one) for one in group.completions] for group in self.groups])

    def of_raws(self, value: Callable[[Mapping[str, float | None]], float | None]) -> Values:
        """A number made from each completion's raw rewards, (P, G)."""
        return _padded([[value(raw) for raw in row] for row in self._raws])

    def place_of(self, group_id: int) -> int | None:
        """Where the group stands; None if it was not in the batch."""
        return next((place for place, group in enumerate(self.groups) if group.id == group_id), None)


def arrays_of(groups: Sequence[GroupScores]) -> StepArrays | None:
    """The arrays of those groups that were trained on; None if none was."""
    batch = [group for group in groups if group.state in TRAINED_ON and group.completions]
    return StepArrays(batch) if batch else None


def _padded(rows: Sequence[Sequence[float | None]]) -> Values:
    """(P, G); a shorter group is filled with NaN, which counts for nothing."""
    longest = max(map(len, rows))
    return np.array([[*row, *[nan] * (longest - len(row))] for row in rows], dtype=np.float64)


@dataclass(frozen=True)
class Recomputed:
    """What the settings make of a step."""

    rewards_P_G: Values  # as the estimator uses them; NaN: unscored
    advantages_P_G: Values
    statistics: GroupStatistics
    states: list[GroupState]  # of each group


def recompute(step: StepArrays, own: Own, chosen: Settings) -> Recomputed:
    """The step's rewards, advantages and states under the chosen settings.

    Rewards stay as they are stored until a weight, a gate or the β of a penalty in the reward is changed. A critic's advantages
    are the stored ones: only the critic could give others.
    """
    changed = chosen.rewards != own.rewards or (own.penalised and chosen.beta != own.settings.beta)
    rewards_P_G = task_P_G = step.rewards_P_G
    parts: dict[str, Values] = {}
    if chosen.rewards is not None:
        functions = chosen.rewards.functions
        parts["components_P_G_K"] = np.stack([_raw(step, one.name) for one in functions], axis=-1)
        parts["weights_K"] = np.array([one.weight for one in functions], dtype=np.float64)
        if changed or own.penalised:
            # Whether a group tells completions apart is judged without the penalty, which differs between any two.
            task_P_G = _task(step, own, chosen.rewards)
        if changed:
            rewards_P_G = total(step, own, chosen.rewards, chosen.beta)
    live_P = live_groups(chosen.advantage, task_P_G, partial=own.recorded, **parts)
    if chosen.advantage.reads == "tokens":
        estimated = Estimate(step.advantages_P_G, group_statistics(rewards_P_G))
    else:
        estimated = estimate(chosen.advantage, rewards_P_G, partial=own.recorded, **parts)
    return Recomputed(
        rewards_P_G,
        estimated.advantages_P_G,
        estimated.statistics._replace(live_P=live_P),
        [
            group_state(scored=scored, live=live, size=len(group.completions))
            for live, scored, group in zip(
                live_P.tolist(), estimated.statistics.scored_P.tolist(), step.groups, strict=True
            )
        ],
    )


def total(step: StepArrays, own: Own, rewards: Rewards, beta: float) -> Values:
    """The rewards from their components: weights, gates, and the KL penalty if it is in the reward. (P, G)"""
    task_P_G = _task(step, own, rewards)
    return with_penalty(task_P_G, step.minus_kl_P_G, beta=beta) if own.penalised else task_P_G


def _task(step: StepArrays, own: Own, rewards: Rewards) -> Values:
    def of(raw: Mapping[str, float | None]) -> float:
        if not own.recorded:
            return total_reward({one.name: raw.get(one.name) for one in rewards.functions}, rewards)
        there = [one.weight * score for one in rewards.functions if (score := raw.get(one.name)) is not None]
        return fsum(there) if there else nan

    return step.of_raws(of)


def _raw(step: StepArrays, name: str) -> Values:
    return step.of_raws(lambda raw: raw.get(name))


def difference(step: StepArrays, recomputed: Recomputed) -> float | None:
    """The largest difference between a stored advantage and the recomputed one: 0 is bit for bit; None if none is stored."""
    distances = np.abs(recomputed.advantages_P_G - step.advantages_P_G)
    known = distances[~np.isnan(distances)]
    return float(known.max()) if len(known) else None
