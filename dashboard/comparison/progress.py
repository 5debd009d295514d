"""How far several runs are, and how long the rest will take."""

from collections.abc import Sequence

from backend.contract.records import TERMINAL, Run
from dashboard.format import counted, duration


def how_far(runs: Sequence[Run]) -> str:
    """7 of 45 finished · 2 failed · about 20 min left."""
    parts = [f"{sum(run.status == 'finished' for run in runs)} of {len(runs)} finished"]
    for status in ("failed", "stopped", "running"):
        count = sum(run.status == status for run in runs)
        parts += [f"{count} {status}"] if count else []
    left = seconds_left(runs)
    return " · ".join([*parts, f"about {roughly(left)} left"] if left else parts)


def roughly(seconds: float) -> str:
    """A span of time no finer than it is known: 40 s, 20 min, 1 h 05 m."""
    return f"{round(seconds / 60)} min" if 90 <= seconds < 3570 else duration(seconds)


def seconds_left(runs: Sequence[Run]) -> float | None:
    """From what a step's training took in the runs that have finished, or takes in one that runs; None while nothing is known."""
    waiting = [run for run in runs if run.status not in TERMINAL]
    pace = _seconds_per_step(runs)
    if not waiting or pace is None:
        return None
    steps = sum(run.progress.total_steps - run.progress.step for run in waiting)
    return steps * pace / max(1, sum(run.status == "running" for run in runs))


def _seconds_per_step(runs: Sequence[Run]) -> float | None:
    seconds = steps = 0.0
    for run in runs:
        if run.status == "finished" and run.trained_seconds is not None:
            seconds += run.trained_seconds
            steps += run.progress.total_steps
    if steps:
        return seconds / steps
    for run in runs:
        left = run.progress.total_steps - run.progress.step
        if run.status == "running" and run.progress.eta_seconds and left > 0:
            return run.progress.eta_seconds / left
    return None


def runs_and_time(count: int, seconds: float | None, *, with_evaluations: bool = True) -> str:
    """45 runs · about 1 h 05 m with one worker."""
    left_out = "" if with_evaluations else ", evaluations not counted"
    return f"{counted(count, 'run')} · " + (
        f"about {roughly(seconds)} with one worker{left_out}"
        if seconds
        else "how long is not known yet: no similar step was measured"
    )
