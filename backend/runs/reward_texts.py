"""The files of a worker's folder that scored a run: kept at the beginning of an attempt, where they are others than before."""

from collections.abc import Sequence

from sqlalchemy import Connection, func, insert, select, update

from backend.contract import records as r
from backend.storage.tables import reward_text, run


def keep(tx: Connection, run_id: int, attempt: int, texts: Sequence[r.RewardText]) -> None:
    """Keep what scores the attempt, unless it is bound to the same already."""
    if texts and {one.name: one.sha256 for one in texts} != binding(tx, run_id):
        rows = [{"run_id": run_id, "attempt": attempt, **one.model_dump()} for one in texts]
        tx.execute(insert(reward_text), rows)


def binding(tx: Connection, run_id: int) -> dict[str, str]:
    """By file, the hash of what must score the next attempt; nothing where nothing did, or a person let it change."""
    changed = select(run.c.rewards_changed).where(run.c.id == run_id)
    return _digests(tx, run_id, tx.execute(changed).scalar_one())


def release(tx: Connection, run_id: int) -> None:
    """What scores the next attempt may be another than what scored those before."""
    tx.execute(update(run).where(run.c.id == run_id).values(rewards_changed=run.c.attempt))


def _digests(tx: Connection, run_id: int, after: int) -> dict[str, str]:
    """Of the newest texts, if they are of an attempt after this one."""
    newest = select(func.max(reward_text.c.attempt)).where(
        reward_text.c.run_id == run_id, reward_text.c.attempt > after
    )
    of_newest = (reward_text.c.run_id == run_id) & (reward_text.c.attempt == newest.scalar_subquery())
    rows = tx.execute(select(reward_text.c.name, reward_text.c.sha256).where(of_newest))
    return {row.name: row.sha256 for row in rows}


MOST = 100
"""Changes that are listed, the newest."""


def listed(tx: Connection, run_id: int) -> list[r.RewardVersion]:
    """What scored the run, the newest first."""
    attempts = select(reward_text.c.attempt).where(reward_text.c.run_id == run_id).distinct()
    newest = attempts.order_by(reward_text.c.attempt.desc()).limit(MOST)
    found: list[r.RewardVersion] = []
    for attempt in tx.execute(newest).scalars().all():
        rows = select(reward_text).where(reward_text.c.run_id == run_id, reward_text.c.attempt == attempt)
        files = [r.RewardText.model_validate(row) for row in tx.execute(rows.order_by(reward_text.c.name)).mappings()]
        found.append(r.RewardVersion(attempt=attempt, files=files))
    return found
