"""The preference pairs of a run's steps: stored with a step's report, listed from the newest step on."""

from collections.abc import Sequence

from sqlalchemy import Connection, select

from backend.contract import records as r
from backend.contract.pairs import PairRecord, PairReport
from backend.contract.queries import PairQuery
from backend.storage import history
from backend.storage.statements import beginning, upsert
from backend.storage.tables import pair


def store(tx: Connection, run_id: int, attempt_: int, step: int, pairs: Sequence[PairReport]) -> None:
    """Add the pairs of one report."""
    if pairs:
        of_step = {"run_id": run_id, "attempt": attempt_, "step": step}
        upsert(tx, pair, [of_step | one.model_dump() for one in pairs])


def page(tx: Connection, run_id: int, query: PairQuery) -> r.Page[PairRecord]:
    """Pairs of the live history, the newest step first."""
    start = query.start or 0
    texts = (beginning(column) for column in (pair.c.prompt, pair.c.chosen, pair.c.rejected))
    rows = (
        select(pair.c.step, pair.c.index, pair.c.prompt_id, *texts, pair.c.margin)
        .where(history.of_run(tx, pair, run_id))
        .order_by(pair.c.step.desc(), pair.c.index)
    )
    if query.step is not None:
        rows = rows.where(pair.c.step == query.step)
    found = tx.execute(rows.offset(start).limit(query.limit + 1)).mappings().all()
    more = str(start + query.limit) if len(found) > query.limit else None
    items = [PairRecord.model_validate(dict(row)) for row in found[: query.limit]]
    return r.Page[PairRecord](items=items, next_cursor=more)
