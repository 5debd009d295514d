"""The next group of a run in which something is left to ask."""

from backend.contract.groups import Group
from backend.contract.records import Run
from dashboard.components.known_steps import known_steps
from dashboard.judging.proposal import propose
from dashboard.session import client, guard


def left_to_judge(run: Run, after: Group | None = None) -> int | None:
    """The id of a live group that is not settled: the newest step's first, or the first behind `after` in that order; None of none.

    Asks for one group after another until it has found one: as many as a person has judged.
    """
    steps = [one.step for one in reversed(known_steps(run)) if one.states.get("live")]
    with guard():
        for step in steps:
            if after is not None and step > after.step:
                continue
            for group in client().groups(run.id, step=step, state="live", sort="index", limit=200).items:
                passed = after is not None and step == after.step and group.index <= after.index
                if not passed and propose(client().group(group.id), client().people.choices(group.id)) is not None:
                    return group.id
    return None
