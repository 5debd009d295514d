"""A worker that is not heard of any more."""

from backend.health.facts import Facts
from backend.health.rule import Finding, Rule
from backend.health.words import seconds

SHARE = 0.5  # of the lease; a worker is heard of at least four times in each


def check(facts: Facts) -> Finding | None:
    """Half a lease is two missed heartbeats; a whole one, and the run is another worker's to take."""
    silence, lease = facts.silence, facts.lease_seconds
    if silence is None or silence < SHARE * lease:
        return None
    gone = silence >= lease
    return Finding(
        title="The worker is gone" if gone else None,
        measured=f"Nothing was heard from the worker for {seconds(silence)}; its lease is {seconds(lease)}."
        + (" The run waits for another worker, which goes on from the last checkpoint." if gone else ""),
        advice="See whether its process and its machine are alive, and whether it reaches this server. "
        + ("Start a worker, and the run goes on by itself." if gone else "If it comes back in time, nothing is lost."),
        numbers={"silent_seconds": silence, "lease_seconds": lease},
    )


RULE = Rule(
    code="worker_silent",
    title="The worker is silent",
    words="nothing was heard from the worker of a running run for half of its lease",
    check=check,
)
