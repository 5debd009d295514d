"""Which rows are live: a resumed run goes on from a checkpoint, and what an earlier attempt did beyond it is history.

A row of a step is live if its step is below the `from_step` of every later attempt. A state (a checkpoint, an evaluation)
counts the steps done before it, so it is live up to that step itself: the checkpoint that an attempt began from is its own.
"""

from sqlalchemy import Column, ColumnElement, Connection, FromClause, Table, and_, func, not_, or_, select, true, update

from backend.contract.protocol import EVALUATION
from backend.storage.tables import attempt, metric


def begin(tx: Connection, run_id: int, number: int, from_step: int) -> None:
    """Cut the earlier attempts off at `from_step`. Nothing of theirs is rewritten."""
    earlier = attempt.c.attempt < number
    beyond = or_(attempt.c.live_below.is_(None), attempt.c.live_below > from_step)
    tx.execute(update(attempt).where(attempt.c.run_id == run_id, earlier, beyond).values(live_below=from_step))


def of_attempt(table: Table) -> ColumnElement[bool]:
    """Joins a table's rows to their attempt."""
    return (attempt.c.run_id == table.c.run_id) & (attempt.c.attempt == table.c.attempt)


def uncut(tx: Connection, table: FromClause, *run_ids: int) -> ColumnElement[bool]:
    """Whether a step's row of these runs is live, without a join: few attempts are ever cut off, and each is named."""
    query = select(attempt.c.run_id, attempt.c.attempt, attempt.c.live_below)
    cut = tx.execute(query.where(attempt.c.run_id.in_(run_ids), attempt.c.live_below.is_not(None)))
    dead = (
        and_(table.c.run_id == run_id, table.c.attempt == number, table.c.step >= below)
        for run_id, number, below in cut
    )
    return and_(true(), *map(not_, dead))


def cuts(tx: Connection, run_id: int) -> list[tuple[int, int]]:
    """Which attempts of a run are cut off, and where. While this is the same, no row of the run that was live is history."""
    cut = attempt.c.live_below.is_not(None)
    query = select(attempt.c.attempt, attempt.c.live_below).where(attempt.c.run_id == run_id, cut)
    return [(number, below) for number, below in tx.execute(query.order_by(attempt.c.attempt))]


def live(step: Column[int] | ColumnElement[int]) -> ColumnElement[bool]:
    """Whether a step's row is live, in a query joined to its attempt."""
    return or_(attempt.c.live_below.is_(None), step < attempt.c.live_below)


def live_state(steps_done: Column[int] | ColumnElement[int]) -> ColumnElement[bool]:
    """Whether a state's row is live, in a query joined to its attempt."""
    return or_(attempt.c.live_below.is_(None), steps_done <= attempt.c.live_below)


def is_evaluation() -> ColumnElement[bool]:
    """Whether a metric is of an evaluation, in a query of them. Not by LIKE, to which "Eval/" is the same."""
    return func.substr(metric.c.name, 1, len(EVALUATION)) == EVALUATION


def from_step(tx: Connection, run_id: int, number: int) -> int | None:
    """Where an attempt began; None while its worker has not said."""
    query = select(attempt.c.from_step).where(attempt.c.run_id == run_id, attempt.c.attempt == number)
    return tx.execute(query).scalar_one_or_none()
