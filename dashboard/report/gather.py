"""Fetches what a report is made of."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Literal, get_args

from backend.contract.client import Client
from backend.contract.groups import GroupSummary
from dashboard.report.groups import Chosen
from dashboard.report.page import Contents

POINTS = 600  # of each series
BOOKMARKED = 30  # groups, at most

Choice = Literal["bookmarked", "examples"]
CHOICES: tuple[Choice, ...] = get_args(Choice)


ENDS = ("step", "-step")  # the first step that has live groups, and the newest one
OF_AN_END = {
    "widest spread": "-reward_std",
    "highest mean of the live ones": "-reward_mean",
    "lowest mean of the live ones": "reward_mean",
}
NEWEST = {"newest dead one": "zero_variance", "newest unscored one": "unscored"}


def gather(client: Client, run_id: int, choices: Iterable[str] = CHOICES) -> Contents:
    """The run with the groups that somebody bookmarked, with examples of its own, with both, or with none."""
    run = client.run(run_id)
    wanted: dict[int, dict[str, None]] = {}  # group -> why, each reason once
    if run.kind in ("grpo", "sample"):
        for group, why in _chosen(client, run_id, set(choices)):
            wanted.setdefault(group.id, {})[why] = None
    return Contents(
        run,
        client.metrics(run_id, max_points=POINTS),
        client.health(run_id).items if run.kind != "sample" else [],
        [Chosen(client.group(group_id), ", ".join(why)) for group_id, why in wanted.items()],
        datetime.now(UTC),
    )


def _chosen(client: Client, run_id: int, choices: set[str]) -> Iterator[tuple[GroupSummary, str]]:
    if "bookmarked" in choices:
        for group in client.groups(run_id, bookmarked=True, limit=BOOKMARKED).items:
            yield group, "bookmarked, of a step that a resume took back" if group.superseded else "bookmarked"
    if "examples" in choices:
        yield from _examples(client, run_id)


def _examples(client: Client, run_id: int) -> Iterator[tuple[GroupSummary, str]]:
    """What training began with and what it came to: at the end of a good run every group is dead, and the newest step says nothing."""
    for end in ENDS:
        for live in client.groups(run_id, state="live", sort=end, limit=1).items:
            for why, sort in OF_AN_END.items():
                for group in client.groups(run_id, step=live.step, state="live", sort=sort, limit=1).items:
                    yield group, why
    for why, state in NEWEST.items():
        for group in client.groups(run_id, state=state, sort="-step", limit=1).items:
            yield group, why
