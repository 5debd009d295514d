"""Workers that were lost earlier: what they did beyond the last checkpoint was done twice."""

from backend.health.facts import Facts
from backend.health.rule import Finding, Rule


def check(facts: Facts) -> Finding | None:
    """Once may be anything; a note where the run has come to its end all the same."""
    lost = facts.lost_attempts
    if not lost:
        return None
    times = "once" if lost == 1 else f"{lost} times"
    return Finding(
        measured=f"A worker held this run and was lost {times}: its lease ran out without a word from it.",
        advice="A killed process (out of memory), a machine that slept or a broken network are the usual causes: see that worker's log. "
        "The run went on from its last checkpoint, and no chart mixes the two histories.",
        numbers={"lost_attempts": lost},
        level="note" if facts.status == "finished" else "warning",
    )


RULE = Rule(
    code="worker_lost",
    title="A worker was lost",
    words="an attempt ended without saying so; only a note where the run is finished",
    check=check,
)
