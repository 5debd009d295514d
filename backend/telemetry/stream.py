"""The event stream of a run: server-sent events with numbers, so that a reader who was cut off goes on where it was."""

from collections.abc import AsyncIterator, Sequence
from typing import Annotated

from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Header
from fastapi.sse import EventSourceResponse, ServerSentEvent
from sqlalchemy import RowMapping

from backend.parameters import RowId
from backend.runs import store as runs
from backend.services import Services, ServicesDep
from backend.telemetry import events

router = APIRouter(prefix="/api/v1", tags=["events"])

LastEventId = Annotated[int | None, Header(ge=0, le=2**63 - 1)]


async def _place(services: ServicesDep) -> AsyncIterator[None]:
    """Held as long as the stream is open. Raises TooManyStreams."""
    with services.broadcast.place():
        yield


def _newest(services: ServicesDep, run_id: RowId) -> int:
    """The number of the run's newest event. Raises NotFound before the stream begins."""
    with services.database.read() as tx:
        runs.require(tx, run_id)
        return events.newest(tx, run_id)


@router.get("/runs/{run_id}/events", response_class=EventSourceResponse, dependencies=[Depends(_place)])
async def run_events(
    services: ServicesDep,
    run_id: RowId,
    newest: Annotated[int, Depends(_newest)],
    last_event_id: LastEventId = None,
) -> AsyncIterator[ServerSentEvent]:
    """What happens from now on, or what happened after Last-Event-ID (0: everything), then what happens."""
    last = newest if last_event_id is None else last_event_id
    with services.broadcast.listen(run_id) as bell:
        yield ServerSentEvent(comment="listening", retry=2000)
        while True:
            bell.clear()
            found = await run_sync(_after, services, run_id, last, limiter=services.broadcast.readers)
            if found is None:
                return
            for row in found:
                last = row["id"]
                yield ServerSentEvent(id=str(last), event=row["kind"], data=row["payload"])
            if not found:
                await bell.wait()


def _after(services: Services, run_id: int, last: int) -> Sequence[RowMapping] | None:
    """The next events; None where the run was deleted."""
    with services.database.read() as tx:
        return events.after(tx, run_id, last) or (None if not runs.is_present(tx, run_id) else [])
