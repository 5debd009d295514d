"""Rules about the worker: it is silent, it hangs, it was lost, or it samples with another policy than it trains."""

from backend.health.facts import RECENT, Facts
from backend.health.rule import Finding, duration, evidence, figure, rule, span

SILENT = 0.5  # of the lease; a worker reports at least four times in each
OPEN_TIMES, OPEN_SECONDS = 6.0, 30.0
OPEN_ADVICE = {
    "rollout": "Completions may have grown to the token limit; if another engine samples, see whether its server is alive.",
    "reward": "A judge or a reward function keeps the step waiting: see the run's log, and rewards.time_limit.",
}
MISMATCH_NATS = 0.05


@rule("The worker is silent", "the worker of a running run has been silent for half of its lease")
def worker_silent(facts: Facts) -> Finding | None:
    """Half a lease is two missed heartbeats; after a whole one another worker may take the run."""
    silence, lease = facts.silence, facts.lease_seconds
    if silence is None or silence < SILENT * lease:
        return None
    gone = silence >= lease
    who = "program" if facts.recorded else "worker"
    return Finding(
        title=f"The {who} is {'gone' if gone else 'silent'}",
        measured=f"Nothing was heard from the {who} for {duration(silence)}; its lease is {duration(lease)}."
        + (
            " The run waits for another worker, which goes on from the last checkpoint."
            if gone and not facts.recorded
            else ""
        ),
        advice="See whether its process and its machine are alive, and whether it reaches this server. "
        + ("Start a worker, and the run goes on by itself." if gone else "If it comes back in time, nothing is lost."),
        numbers={"silent_seconds": silence, "lease_seconds": lease},
    )


@rule(
    "A phase is stuck",
    f"the current phase has taken at least {OPEN_TIMES:g} times as long as in the median of the last 50 steps, and at least {OPEN_SECONDS:g} seconds",
    "step_time",
    steps=3,
)
def phase_open(facts: Facts) -> Finding | None:
    """Sampling that hangs, a judge that does not answer: measured against the run's own times, so silent in its first steps."""
    phase = facts.phase
    times = facts.history.get(f"time/{phase.name}") if phase else None
    usual = times.median if times else None
    if phase is None or times is None or not usual or phase.seconds < max(OPEN_TIMES * usual, OPEN_SECONDS):
        return None
    return Finding(
        title=f"The phase {phase.name} is stuck",
        measured=f"Step {facts.step} has been in the phase {phase.name} for {duration(phase.seconds)}, "
        f"{phase.seconds / usual:.0f} times its median of {duration(usual)}.",
        advice=f"{OPEN_ADVICE.get(phase.name, 'Something slows the worker down.')} See the worker's log, and whether its machine is short "
        "of memory or shared with other work. Stopping the run loses at most the steps since its last checkpoint.",
        numbers={"seconds_open": phase.seconds, "median_seconds": usual},
        evidence=evidence(times.values, f"time/{phase.name}"),
    )


@rule("A worker was lost", "an attempt ended without a message; only a note if the run is finished")
def worker_lost(facts: Facts) -> Finding | None:
    """What the worker did after the last checkpoint was done twice."""
    lost = facts.lost_attempts
    who = "The program that trained it" if facts.recorded else "A worker held this run and"
    times = f"{lost} times" if lost > 1 else "once"
    if not lost:
        return None
    return Finding(
        title="The program was lost" if facts.recorded else None,
        measured=f"{who} was lost {times}: its lease ran out without a word from it.",
        advice="A killed process (out of memory), a machine that slept or a broken network are the usual causes: see that worker's log. "
        "The run went on from its last checkpoint, and no chart mixes the two histories.",
        numbers={"lost_attempts": lost},
        level="note" if facts.status == "finished" else None,
    )


@rule(
    "Sampling and training disagree",
    f"sampling_logprob_diff is at least {MISMATCH_NATS:g} nats per token on average over the last {RECENT} steps",
    "sampling_logprob_diff",
    steps=3,
)
def sampling_mismatch(facts: Facts) -> Finding | None:
    """Rounding is far below the threshold; more means that the policy that samples is not the one that is trained."""
    gap = facts.recent("sampling_logprob_diff")
    mean = gap.mean
    if mean is None or mean < MISMATCH_NATS:
        return None
    engine, same = facts.text("sampling.engine") or "native", facts.text("model.dtype") == "float32"
    by = "" if facts.recorded else f" ({engine} engine)"
    own = f"One model computes both: {'please report it' if same else 'compare with model.dtype: float32'}."
    other = "Check that the engine has the same weights, dtype, tokenizer and temperature; sampling.engine: native has them all."
    return Finding(
        measured=f"Over {span(gap.values)} the log-probs of sampling{by} and of training "
        f"differed by {figure(mean)} nats per token on average.",
        advice=f"The update treats tokens that another policy drew as if the policy had drawn them itself. {own if engine == 'native' else other}",
        numbers={"mean_difference": mean},
        evidence=evidence(gap.values, "sampling_logprob_diff", step=gap.peak),
    )
