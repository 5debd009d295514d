"""Fetches what a report is made of."""

from collections.abc import Iterable
from datetime import UTC, datetime

from backend.contract.client import Client
from backend.contract.groups import GroupSummary
from dashboard.report.page import Contents

POINTS = 600  # of each series
BOOKMARKED = 30  # groups, at most
UNASKED = 3  # where nobody bookmarked any: of the latest step with groups, the widest


def gather(client: Client, run_id: int, group_ids: Iterable[int] = ()) -> Contents:
    """The run with these groups; else with its bookmarked ones; else with the widest of its latest step."""
    run = client.run(run_id)
    wanted = list(group_ids) or [group.id for group in _chosen(client, run_id)]
    return Contents(
        run,
        client.metrics(run_id, max_points=POINTS),
        client.health(run_id).items if run.kind == "grpo" else [],
        [client.group(group_id) for group_id in wanted],
        datetime.now(UTC),
    )


def _chosen(client: Client, run_id: int) -> list[GroupSummary]:
    bookmarked = client.groups(run_id, bookmarked=True, limit=BOOKMARKED).items
    if bookmarked:
        return bookmarked
    latest = client.groups(run_id, sort="-step", limit=1).items
    return client.groups(run_id, step=latest[0].step, sort="-reward_std", limit=UNASKED).items if latest else []
