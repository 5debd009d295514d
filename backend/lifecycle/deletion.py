"""Deleting a run: gone for everybody at once, its files and rows removed in the background, a slice in each transaction."""

import logging
import time

from sqlalchemy import Connection, Table, delete, func, select, tuple_, update

from backend.bucket.bucket import BucketTrouble
from backend.checkpoints import files
from backend.contract import records as r
from backend.contract.home import store_address
from backend.errors import Conflict
from backend.runs import store
from backend.runs.needs import loads_from
from backend.server.log import about_run
from backend.services import Services
from backend.storage.tables import attempt, checkpoint, metadata, prompt_group, run, trace_file
from backend.telemetry import traces

log = logging.getLogger(__name__)

PARTS = [
    table for table in reversed(metadata.sorted_tables) if any(key.column is run.c.id for key in table.foreign_keys)
]
"""The tables of a run's rows, those that others refer to last; what hangs on a row goes with it."""
PARTS.remove(attempt)  # few rows, which go with the run's own

SLICE_SECONDS = 0.04
"""How long a slice aims to hold the write lock. The backend rests as long after each, which is the others' turn."""
FIRST_ROWS = 16
"""Rows in the first slice, and the fewest in any: on a busy machine a commit alone may take as long as a slice should."""
BUCKET_AGAIN_SECONDS = 30.0
"""Between two attempts to remove a run's checkpoints from a bucket."""


def mark(tx: Connection, run_id: int, *, keep_trunk: bool = False) -> None:
    """Take a run from everybody's sight. Raises NotFound, and Conflict while it runs or another run still needs it.

    With `keep_trunk` its forks may go on needing it: the remover waits for them.
    """
    status = store.row_of(tx, run_id)["status"]
    if status == "running":
        raise Conflict(f"Run {run_id} is running; stop it first, then delete it.")
    waiting = run.c.status.in_(store.WAITING) & (run.c.id != run_id)
    other = tx.execute(select(func.min(run.c.id)).where(waiting, loads_from(run_id))).scalar_one_or_none()
    if other is not None:
        what = "starts from" if store.row_of(tx, other)["source_run_id"] == run_id else "is rewarded by"
        raise Conflict(f"Run {other} {what} a checkpoint of run {run_id}; stop or finish that one first.")
    forks = store.forks_of(tx, run_id)
    if forks and not keep_trunk:
        which = f"Run {forks[0]} was" if len(forks) == 1 else f"Runs {', '.join(map(str, forks))} were"
        raise Conflict(
            f"{which} forked from run {run_id} and would lose the steps before the fork. Delete with keep_trunk=true to keep "
            "what they need until they are deleted, too, or delete them first."
        )
    tx.execute(update(run).where(run.c.id == run_id).values(status=store.DELETED, idempotency_key=None))
    if forks:
        return
    for table in (checkpoint, trace_file):  # few rows; none may name a file that is not there any more
        tx.execute(delete(table).where(table.c.run_id == run_id))


def under_way(tx: Connection) -> list[r.Deletion]:
    """The deleted runs of which something is still there, in the order in which they go."""
    groups = select(func.count()).where(prompt_group.c.run_id == run.c.id).scalar_subquery()
    query = select(run.c.id.label("run_id"), run.c.name.label("run_name"), groups.label("groups_left"))
    gone = run.c.status == store.DELETED, ~store.needed_by_forks(run.c.id)
    rows = tx.execute(query.where(*gone).order_by(run.c.id)).mappings()
    return [r.Deletion.model_validate(dict(row)) for row in rows]


class Remover:
    """Removes deleted runs, one slice a call. It keeps nothing that a restart would miss."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._run_id = 0
        self._rows: dict[Table, float] = {}
        self._not_before: dict[int, float] = {}  # runs whose files the bucket did not remove

    def advance(self) -> float | None:
        """Remove a slice; for how many seconds to rest then. None: nothing is to be removed."""
        waiting = [one for one, until in self._not_before.items() if time.monotonic() < until]
        with self._services.database.read() as tx:
            deleted = select(run.c.id, run.c.store).where(run.c.status == store.DELETED, run.c.id.not_in(waiting))
            deleted = deleted.where(~store.needed_by_forks(run.c.id))
            found = tx.execute(deleted.order_by(run.c.id).limit(1)).one_or_none()
        about_run(None if found is None else found.id)
        if found is None:
            return None
        run_id = found.id
        if run_id != self._run_id:
            # the files first: they are most of a run, and they go also where the database finds no room for its own work
            traces.remove(self._services.settings.home, run_id)
            files.remove(self._services.settings.home, run_id)
            if not self._removed_from_bucket(run_id, found.store or ""):
                return 0.0
            self._run_id, self._rows = run_id, dict.fromkeys(PARTS, FIRST_ROWS)
        with self._services.database.write() as tx:
            began = time.monotonic()
            part = next((table for table in PARTS if _removed(tx, table, run_id, int(self._rows[table]))), None)
            if part is None:
                tx.execute(delete(run).where(run.c.id == run_id))
        took = time.monotonic() - began
        if part is None:
            log.info("deleted with all that it had")
        else:
            self._rows[part] = max(FIRST_ROWS, self._rows[part] * min(2.0, SLICE_SECONDS / took))
        return took

    def _removed_from_bucket(self, run_id: int, lies_in: str) -> bool:
        """Whether the run's rows may go: as long as something of it may lie in the bucket they stay, and say that it is to be removed.

        A run with checkpoints elsewhere does not wait for that: no more than an upload that a kill cut short can be there.
        """
        bucket = self._services.bucket
        elsewhere = bool(lies_in) and (bucket is None or bucket.address != store_address(lies_in))
        if elsewhere and lies_in.startswith("s3://"):
            log.warning(
                "its checkpoints stay in %s/run-%d, which GROUPSCOPE_CHECKPOINTS does not name", lies_in, run_id
            )
        if bucket is None:
            return True
        try:
            bucket.remove(f"run-{run_id}")
        except BucketTrouble as trouble:
            if elsewhere:
                log.warning("the bucket was not searched for what a killed upload may have left there: %s", trouble)
                return True
            log.warning("what it has in the bucket is still there, and is asked for again: %s", trouble)
            self._not_before[run_id] = time.monotonic() + BUCKET_AGAIN_SECONDS
            return False
        self._not_before.pop(run_id, None)
        return True


def _removed(tx: Connection, table: Table, run_id: int, rows: int) -> int:
    """Delete rows of a run, one at least; how many there were."""
    key = [column for column in table.primary_key if column is not table.c.run_id]
    some = select(*key).where(table.c.run_id == run_id).order_by(*key).limit(max(1, rows))
    return tx.execute(delete(table).where(table.c.run_id == run_id, tuple_(*key).in_(some))).rowcount
