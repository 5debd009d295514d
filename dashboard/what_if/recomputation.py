"""The advantages of a step under other settings, by the very functions that trained the run.

With the run's own settings they are the stored ones, bit for bit: the trainer, too, computes them on numpy, in float64, from
numbers that are all recorded.
"""

from dataclasses import dataclass
from math import isnan

import numpy as np

from backend.contract.groups import GroupState
from backend.contract.reward import Rewards
from dashboard.what_if.settings import Own, Settings
from dashboard.what_if.step_arrays import StepArrays, Values
from worker.algorithms.advantages import GroupStatistics, group_statistics
from worker.algorithms.estimator import Estimate, estimate, live_groups
from worker.algorithms.total_reward import total_reward, with_penalty


@dataclass(frozen=True)
class Recomputed:
    """What the settings make of a step."""

    rewards_P_G: Values  # as the estimator uses them; NaN: unscored
    advantages_P_G: Values
    statistics: GroupStatistics
    states: list[GroupState]  # of each group


def recompute(step: StepArrays, own: Own, chosen: Settings) -> Recomputed:
    """The step's rewards, advantages and states under the chosen settings.

    Rewards stay as they are stored until a weight, a gate or the β of a penalty in the reward is changed. Advantages of `gae`
    are the stored ones: only the critic could give others.
    """
    changed = chosen.rewards != own.rewards or (own.penalised and chosen.beta != own.settings.beta)
    rewards_P_G = task_P_G = step.rewards_P_G
    if chosen.rewards is not None and (changed or own.penalised):
        # Whether a group tells completions apart is judged without the penalty, which differs between any two.
        task_P_G = _task(step, chosen.rewards)
    if chosen.rewards is not None and changed:
        rewards_P_G = total(step, own, chosen.rewards, chosen.beta)
    parts = _parts(step, chosen.rewards)
    live_P = live_groups(chosen.advantage, task_P_G, **parts)
    if chosen.advantage.kind == "gae":
        estimated = Estimate(step.advantages_P_G, group_statistics(rewards_P_G))
    else:
        estimated = estimate(chosen.advantage, rewards_P_G, **parts)
    return Recomputed(
        rewards_P_G,
        estimated.advantages_P_G,
        estimated.statistics._replace(live_P=live_P),
        [
            _state(live, scored, len(group.completions))
            for live, scored, group in zip(
                live_P.tolist(), estimated.statistics.scored_P.tolist(), step.groups, strict=True
            )
        ],
    )


def total(step: StepArrays, own: Own, rewards: Rewards, beta: float) -> Values:
    """The rewards from their components: weights, gates, and the KL penalty where it is in the reward. (P, G)"""
    task_P_G = _task(step, rewards)
    return with_penalty(task_P_G, step.minus_kl_P_G, beta=beta) if own.penalised else task_P_G


def _task(step: StepArrays, rewards: Rewards) -> Values:
    return step.of_raws(lambda raw: total_reward({one.name: raw.get(one.name) for one in rewards.functions}, rewards))


def _parts(step: StepArrays, rewards: Rewards | None) -> dict[str, Values]:
    """The reward functions' values and weights, which `normalize_then_sum` reads."""
    if rewards is None:
        return {}
    components_P_G_K = step.components([one.name for one in rewards.functions])
    weights_K = np.array([one.weight for one in rewards.functions], dtype=np.float64)
    return {"components_P_G_K": components_P_G_K, "weights_K": weights_K}


def _state(live: bool, scored: float, size: int) -> GroupState:
    """As the worker names it: fewer than two scored completions cannot be compared."""
    return "live" if live else "zero_variance" if scored >= min(2, size) else "unscored"


def difference(step: StepArrays, recomputed: Recomputed) -> float | None:
    """The largest difference between a stored advantage and the recomputed one: 0 is bit for bit; None where none is stored."""
    distances = np.abs(recomputed.advantages_P_G - step.advantages_P_G)
    known = distances[~np.isnan(distances)]
    largest = float(known.max()) if len(known) else None
    return None if largest is None or isnan(largest) else largest
