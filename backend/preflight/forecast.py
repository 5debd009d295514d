"""How many groups will carry no signal, and how long the run will take."""

from collections.abc import Sequence
from statistics import median

from backend.contract.preflight import DeadForecast, TimeEstimate
from backend.preflight.facts import StepTimes

SIZES = frozenset({2, 4, 8, 16})


def dead_share(success_rate: float, group_size: int) -> float:
    """The share of groups whose completions are all right or all wrong: p^G + (1 − p)^G."""
    return float(success_rate**group_size + (1 - success_rate) ** group_size)


def dead_groups(success_rate: float, group_size: int) -> Sequence[DeadForecast]:
    """The share for the usual sizes and the chosen one, by size."""
    return [
        DeadForecast(group_size=size, share=dead_share(success_rate, size)) for size in sorted(SIZES | {group_size})
    ]


def run_time(times: StepTimes, steps: int) -> TimeEstimate:
    """From the median of similar steps; evaluations come on top."""
    seconds = median(times.seconds)
    count = len(times.seconds)
    return TimeEstimate(
        seconds_per_step=seconds,
        total_seconds=seconds * steps,
        basis=f"measured here: {count} similar step{'s' if count > 1 else ''} on {times.device}, evaluations not counted",
    )
