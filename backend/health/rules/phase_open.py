"""A phase that does not end: sampling that hangs, a judge that does not answer."""

from backend.health.facts import Facts
from backend.health.rule import Finding, Rule, evidence
from backend.health.words import seconds

TIMES, AT_LEAST = 6.0, 30.0
ADVICE = {
    "rollout": "Completions may have grown to the token limit; with an engine of its own, see whether that server is alive.",
    "reward": "A judge or a reward function keeps the step waiting: see the run's log, and rewards.time_limit.",
}


def check(facts: Facts) -> Finding | None:
    """Against the run's own times, which the first steps have to measure."""
    phase = facts.phase
    if phase is None:
        return None
    times = facts.history.get(f"time/{phase.name}")
    usual = times.median if times else None
    if times is None or not usual or phase.seconds < max(TIMES * usual, AT_LEAST):
        return None
    return Finding(
        title=f"The phase {phase.name} does not end",
        measured=f"Step {facts.step} has been in the phase {phase.name} for {seconds(phase.seconds)}, "
        f"{phase.seconds / usual:.0f} times its median of {seconds(usual)}.",
        advice=f"{ADVICE.get(phase.name, 'Something slows the worker down.')} See the worker's log, and whether its machine is short "
        "of memory or shared with other work. Stopping the run loses at most the steps since its last checkpoint.",
        numbers={"seconds_open": phase.seconds, "median_seconds": usual},
        evidence=evidence(times.values, f"time/{phase.name}"),
    )


RULE = Rule(
    code="phase_open",
    title="A phase does not end",
    words=f"the phase that is open takes at least {TIMES:g} times its median of the last 50 steps, and at least {AT_LEAST:g} seconds",
    check=check,
    metrics=("step_time",),
    steps=3,
)
