"""Fetches what a report is made of."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Literal, NamedTuple, get_args

from backend.contract.client import Client
from backend.contract.groups import GroupSummary
from dashboard.report.groups import Chosen
from dashboard.report.page import Contents

POINTS = 600  # of each series
BOOKMARKED = 30  # groups, at most

Choice = Literal["bookmarked", "examples"]
CHOICES: tuple[Choice, ...] = get_args(Choice)


class _Example(NamedTuple):
    why: str
    state: str
    sort: str


EXAMPLES = (
    _Example("widest spread", "live", "-reward_std"),
    _Example("highest mean of the live ones", "live", "-reward_mean"),
    _Example("lowest mean of the live ones", "live", "reward_mean"),
    _Example("dead", "zero_variance", "index"),
    _Example("unscored", "unscored", "index"),
)


def gather(client: Client, run_id: int, choices: Iterable[str] = CHOICES) -> Contents:
    """The run with the groups that somebody bookmarked, with examples from its newest step, with both, or with none."""
    run = client.run(run_id)
    wanted: dict[int, list[str]] = {}
    if run.kind in ("grpo", "sample"):
        for group, why in _chosen(client, run_id, set(choices)):
            wanted.setdefault(group.id, []).append(why)
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
    if "examples" not in choices:
        return
    for newest in client.groups(run_id, sort="-step", limit=1).items:
        for why, state, sort in EXAMPLES:
            for group in client.groups(run_id, step=newest.step, state=state, sort=sort, limit=1).items:
                yield group, why
