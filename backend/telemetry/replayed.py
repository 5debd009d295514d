"""What replays found: stored with the report of the step that they explain."""

from sqlalchemy import Connection, insert, select

from backend.contract.protocol import Report
from backend.contract.replay import Replayed
from backend.errors import NotFound
from backend.storage.tables import replayed


def store(tx: Connection, run_id: int, sent: Report) -> None:
    """Keep what the report says of it, if it does."""
    if sent.replayed is not None:
        found = sent.replayed.model_dump(mode="json")
        tx.execute(insert(replayed).values(run_id=run_id, attempt=sent.attempt, found=found))


def read(tx: Connection, run_id: int) -> Replayed:
    """What the run found. Raises NotFound for another kind of run, and before the replay has come to its end."""
    query = select(replayed.c.found).where(replayed.c.run_id == run_id).order_by(replayed.c.attempt.desc()).limit(1)
    found = tx.execute(query).scalar_one_or_none()
    if found is None:
        raise NotFound(f"Run {run_id} has explained no step.")
    return Replayed.model_validate(found)
