"""Whose rows a run's history is made of, and which of them are live.

A fork's history is its trunk, steps of the runs from which it came, and then its own: the rows of the trunk stay those of their run.

A resumed run goes on from a checkpoint, and what an earlier attempt did beyond it is history.

A row of a step is live if its step is below the `from_step` of every later attempt. A state (a checkpoint, an evaluation)
counts the steps done before it, so it is live up to that step itself: the checkpoint that an attempt began from is its own.
"""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Column, ColumnElement, Connection, FromClause, Table, and_, func, not_, or_, select, true, update

from backend.contract.protocol import EVALUATION
from backend.storage.tables import attempt, metric, trunk

LAST = 2**63 - 1


class Segment(NamedTuple):
    """The steps of a history, from `first` to `last`, that are in the rows of one run."""

    run_id: int
    first: int
    last: int


def segments(tx: Connection, run_id: int) -> list[Segment]:
    """What a run's history is made of, in the order of its steps."""
    rows = tx.execute(select(trunk.c.of_run_id, trunk.c.below).where(trunk.c.run_id == run_id).order_by(trunk.c.below))
    ends = [*map(tuple, rows), (run_id, LAST + 1)]
    starts = [0, *(below for _, below in ends)]
    return [Segment(of, first, below - 1) for first, (of, below) in zip(starts, ends, strict=False)]


def within(tx: Connection, run_id: int, first: int, last: int) -> list[Segment]:
    """The same for a window of steps, both included."""
    cut = (Segment(of, max(low, first), min(high, last)) for of, low, high in segments(tx, run_id))
    return [one for one in cut if one.first <= one.last]


def owner(tx: Connection, run_id: int, step: int) -> int:
    """The run in whose rows a step of this history is."""
    return next(part.run_id for part in segments(tx, run_id) if part.first <= step <= part.last)


def of_run(tx: Connection, table: FromClause, run_id: int) -> ColumnElement[bool]:
    """Whether a step's row is of the run's live history; of any run but a fork, whether it is its own."""
    parts = segments(tx, run_id)
    return and_(in_segments(table, parts), uncut(tx, table, *(part.run_id for part in parts)))


def in_segments(table: FromClause, parts: Sequence[Segment]) -> ColumnElement[bool]:
    """Whether a step's row is in one of these, live or not."""
    return or_(
        *(
            and_(
                table.c.run_id == of,
                true() if first == 0 else table.c.step >= first,
                true() if last == LAST else table.c.step <= last,
            )
            for of, first, last in parts
        )
    )


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
