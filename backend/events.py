"""What happened to a run: its events, the lines of its log, and the bell that wakes those who watch it."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime

from anyio import CapacityLimiter
from sqlalchemy import Connection, RowMapping, func, insert, select

from backend.contract import protocol as p
from backend.contract import records as r
from backend.contract.base import Json
from backend.contract.queries import LogQuery
from backend.errors import Refusal
from backend.storage.tables import log_line, run_event

LOG_CHARACTERS = 500  # of a line, in its event
_READERS = 4  # of the forty threads that requests share
_Happened = tuple[str, Mapping[str, Json]]  # the kind of an event, and what it carries


def record(tx: Connection, run_id: int, kind: str, payload: Mapping[str, Json], at: datetime) -> None:
    """Add an event: `status`, `step`, `checkpoint` or `log`."""
    _record(tx, run_id, [(kind, payload)], at)


def of_reports(tx: Connection, run_id: int, attempt: int, reports: Sequence[p.Report], at: datetime) -> None:
    """Add what reports tell of: the step that each completes, and its lines."""
    happened: list[_Happened] = []
    for sent in reports:
        if sent.trained_step is not None:
            happened.append(("step", {"step": sent.trained_step}))
        happened += map(_of_line, sent.logs)
    _record(tx, run_id, happened, at)
    _write(tx, run_id, attempt, [line for sent in reports for line in sent.logs], at)


def _record(tx: Connection, run_id: int, happened: Sequence[_Happened], at: datetime) -> None:
    place = {"run_id": run_id, "created_at": at}
    if happened:
        tx.execute(insert(run_event), [place | {"kind": kind, "payload": payload} for kind, payload in happened])


def _write(tx: Connection, run_id: int, attempt: int, lines: Sequence[p.LogLine], at: datetime) -> None:
    place = {"run_id": run_id, "attempt": attempt, "created_at": at}
    if lines:
        tx.execute(insert(log_line), [place | line.model_dump() for line in lines])


def _of_line(line: p.LogLine) -> _Happened:
    return "log", {"level": line.level, "message": line.message[:LOG_CHARACTERS]}


def after(tx: Connection, run_id: int, event_id: int, limit: int = 500) -> Sequence[RowMapping]:
    """The events of a run that came after one, oldest first."""
    query = (
        select(run_event.c.id, run_event.c.kind, run_event.c.payload)
        .where(run_event.c.run_id == run_id, run_event.c.id > event_id)
        .order_by(run_event.c.id)
        .limit(limit)
    )
    return tx.execute(query).mappings().all()


def newest(tx: Connection, run_id: int) -> int:
    """The number of a run's newest event; 0 if it has none."""
    return tx.execute(select(func.max(run_event.c.id)).where(run_event.c.run_id == run_id)).scalar_one() or 0


def log(tx: Connection, run_id: int, attempt: int, line: p.LogLine, at: datetime) -> None:
    """Write a line, and the event that shows its beginning."""
    _write(tx, run_id, attempt, [line], at)
    _record(tx, run_id, [_of_line(line)], at)


def log_page(tx: Connection, run_id: int, query: LogQuery) -> r.Page[r.LogRecord]:
    """Lines of all attempts, oldest first."""
    lines = (
        select(log_line)
        .where(log_line.c.run_id == run_id, log_line.c.id > query.after_id)
        .order_by(log_line.c.id)
        .limit(query.limit + 1)
    )
    rows = tx.execute(lines).mappings().all()
    items = [r.LogRecord.model_validate(dict(row)) for row in rows[: query.limit]]
    return r.Page[r.LogRecord](items=items, next_cursor=str(items[-1].id) if len(rows) > query.limit else None)


class TooManyStreams(Refusal):
    """The largest number of event streams is open already; the other connections are kept for everything else."""

    status, code = 503, "busy"


class Broadcast:
    """Rings for a run; it carries nothing: the listener reads the database.

    `most` is the number of event streams that may be open at once, `readers` the threads in which they read: however many
    streams wake at a commit, most threads are free for other requests.
    """

    def __init__(self, *, most: int) -> None:
        self.most, self.open = most, 0
        self.readers = CapacityLimiter(_READERS)
        self._lock = threading.Lock()
        self._bells: dict[int, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = defaultdict(set)

    @contextmanager
    def place(self) -> Iterator[None]:
        """One of the places for event streams; for the event loop's thread. Raises TooManyStreams."""
        if self.open >= self.most:
            text = f"{self.open} event streams are open, and that is the most: close some, or ask for the run now and then."
            raise TooManyStreams(text)
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1

    @contextmanager
    def listen(self, run_id: int) -> Iterator[asyncio.Event]:
        """An event that is set whenever the run rings; the listener clears it."""
        bell = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._bells[run_id].add(bell)
        try:
            yield bell[1]
        finally:
            with self._lock:
                self._bells[run_id].discard(bell)
                if not self._bells[run_id]:
                    del self._bells[run_id]

    def ring(self, run_id: int) -> None:
        """From any thread, after the commit."""
        with self._lock:
            bells = list(self._bells.get(run_id, ()))
        for loop, bell in bells:
            loop.call_soon_threadsafe(bell.set)
