"""How many groups will carry no signal, and how long the run will take."""

from collections.abc import Sequence
from statistics import median

from backend.catalog.models import ModelShape
from backend.contract.config import TrainingConfig
from backend.contract.grpo import GrpoConfig
from backend.contract.preflight import DeadForecast, TimeEstimate
from backend.preflight.dominance import time_in_words
from backend.preflight.facts import StepTimes
from backend.preflight.speed import MEASURED_ON, step_seconds

SIZES = frozenset({2, 4, 8, 16})


def dead_share(success_rate: float, group_size: int) -> float:
    """The share of groups whose completions are all right or all wrong: p^G + (1 − p)^G."""
    return float(success_rate**group_size + (1 - success_rate) ** group_size)


def dead_groups(success_rate: float, group_size: int) -> Sequence[DeadForecast]:
    """The share for the usual sizes and the chosen one, by size."""
    return [
        DeadForecast(group_size=size, share=dead_share(success_rate, size)) for size in sorted(SIZES | {group_size})
    ]


def measured_time(times: StepTimes, config: TrainingConfig) -> TimeEstimate:
    """From the median of similar steps, and of evaluations where runs that evaluated alike are known."""
    seconds = median(times.seconds)
    count = len(times.seconds)
    due = evaluations(config.budget.steps, config.budget.eval_every)
    known = median(times.evaluations) if times.evaluations else None
    parts = {phase: median(values) for phase, values in times.phases.items() if values}
    if parts:
        parts["rest"] = max(0.0, seconds - sum(parts.values()))
    return TimeEstimate(
        seconds_per_step=seconds,
        total_seconds=seconds * config.budget.steps + due * (known or 0.0),
        basis=f"measured here: {count} similar step{'s' if count > 1 else ''} on {times.device}{_beside(due, known)}",
        with_evaluations=not due or known is not None,
        parts=parts,
        advice=time_in_words(parts, config) if parts else "",
    )


def evaluations(steps: int, every: int) -> int:
    """How many a run makes: before the first step, every so many, and after the last; none where `every` is 0."""
    return 1 + -(-steps // every) if every else 0


def _beside(due: int, seconds: float | None) -> str:
    if not due:
        return ""
    if seconds is None:
        return ", evaluations not counted"
    return f"; {due} evaluation{'s' if due > 1 else ''}, with loading and checkpoints, of {seconds:.1f} s each as in similar runs"


def counted_time(config: GrpoConfig, shape: ModelShape, device: str) -> TimeEstimate | None:
    """From the operations of a step; None where the device's speed is not known."""
    parts = step_seconds(config, shape, device)
    if parts is None:
        return None
    seconds = sum(parts.values())
    return TimeEstimate(
        seconds_per_step=seconds,
        total_seconds=seconds * config.budget.steps,
        basis=f"not measured yet: counted from the model's shape at the speed of an {MEASURED_ON}, every completion at its limit; "
        "scoring and evaluations come on top",
        measured=False,
        with_evaluations=False,
        parts=dict(parts),
        advice=time_in_words(parts, config),
    )
