"""The worker's routes: claim, start, heartbeat, report, reports, checkpoint, finish, fail."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import APIRouter, Header, Request
from fastapi.concurrency import run_in_threadpool
from sqlalchemy import Connection
from sqlalchemy.exc import DatabaseError

from backend import workers
from backend.answers import NDJSON
from backend.catalog import CARDS
from backend.checkpoints import retention
from backend.checkpoints import store as checkpoints
from backend.contract import protocol as p
from backend.document import raw_body
from backend.errors import Conflict, Refusal
from backend.queue import attempts, lease, recordings, reports
from backend.queue import claim as claims
from backend.runs import store as runs
from backend.services import RowId, Services, ServicesDep, with_reserve
from backend.telemetry import traces

router = APIRouter(prefix="/api/v1/worker", tags=["worker"])


Secret = Annotated[str, Header(alias=p.SECRET_HEADER, max_length=200)]
Ending = Annotated[bool, Header(alias=p.ENDING_HEADER)]


@contextmanager
def _proven(services: Services, run_id: int, attempt: int, secret: str) -> Iterator[Connection]:
    """A writing transaction of the worker that claimed the run. Raises LeaseLost for any other."""
    with services.changing(run_id) as tx:
        lease.prove(tx, run_id, attempt, secret)
        yield tx


def _require_protocol(spoken: int) -> None:
    if spoken != p.PROTOCOL:
        raise Conflict(
            f"This worker speaks version {spoken} of the worker protocol and the backend version {p.PROTOCOL}: install "
            "the same release of Groupscope on both."
        )


@router.post("/claim")
def claim(services: ServicesDep, body: p.ClaimRequest) -> p.ClaimReply:
    """The next run for this worker, if one waits."""
    _require_protocol(body.protocol)
    while True:
        with services.database.read() as tx:
            among = claims.candidates(tx, body.worker, body.kinds, services.terms())
        with services.database.write() as tx:
            terms = services.terms()
            workers.seen(tx, body.worker, terms.now)
            claimed = claims.once_more(tx, body.worker, body.key, terms) if body.key else None
            claimed = claimed or claims.take(tx, among, body.worker, body.key, terms, services.clock.stamp())
            wait = workers.ask_again_seconds(tx, terms) if claimed is None else p.ASK_AGAIN_SECONDS
        if claimed is not None:
            services.broadcast.ring(claimed.run_id)
        if claimed is not None or not among:  # else others took all that were found
            idle = claimed is None and "grpo" in body.kinds
            found = [model.source for model in body.worker.models if model.problem is None]
            have = [*(card.source for card in CARDS), *found]
            look = services.looks.wish(have, terms.now) if idle else None
            return p.ClaimReply(claim=claimed, look=look, ask_again_seconds=wait)


@router.post("/looks")
def looked(services: ServicesDep, body: p.LookFound) -> p.Accepted:
    """What a worker found in the prompts of a configuration that a form asked about."""
    services.looks.found(body.key, body.look, services.clock.seconds())
    return p.Accepted()


@router.post("/recordings", status_code=201)
def record(services: ServicesDep, body: p.Recording) -> p.Claim:
    """Store a run that the sender trains itself, or its next attempt, and lease it to the sender."""
    _require_protocol(body.protocol)
    with services.database.write() as tx:
        claimed = recordings.begin(tx, body, services.terms(), services.clock.stamp())
    services.broadcast.ring(claimed.run_id)
    return claimed


@router.post("/runs/{run_id}/start")
@with_reserve
def start(
    services: ServicesDep, run_id: RowId, body: p.Start, secret: Secret = "", _ending: Ending = False
) -> p.Accepted:
    """Where the attempt begins."""
    with _proven(services, run_id, body.attempt, secret) as tx:
        return p.Accepted(duplicate=attempts.start(tx, run_id, body, services.terms()))


@router.post("/runs/{run_id}/heartbeat")
def heartbeat(services: ServicesDep, run_id: RowId, body: p.Heartbeat, secret: Secret = "") -> p.HeartbeatReply:
    """Renew the lease; learn what was asked for."""
    with services.database.write() as tx:
        lease.prove(tx, run_id, body.attempt, secret)
        terms = services.terms()
        reply = attempts.heartbeat(tx, run_id, body, terms, services.clock.stamp())
        workers.heard(tx, body, terms.now)
    if body.ranks is not None:
        services.ranks.hear(run_id, body.attempt, body.ranks, terms.now)
    return reply


@router.post("/runs/{run_id}/report", openapi_extra=raw_body("application/json", p.Report))
async def report(
    services: ServicesDep, run_id: RowId, request: Request, secret: Secret = "", _ending: Ending = False
) -> p.Accepted:
    """Store one report. Parsed off the event loop: it may be large."""
    body = await request.body()
    return await run_in_threadpool(
        _store, services=services, run_id=run_id, body=body, secret=secret, together=False, _ending=_ending
    )


@router.post("/runs/{run_id}/reports", openapi_extra=raw_body(NDJSON, p.Report))
async def several_reports(
    services: ServicesDep, run_id: RowId, request: Request, secret: Secret = "", _ending: Ending = False
) -> p.Accepted:
    """Store several reports, each on a line, or none of them."""
    body = await request.body()
    return await run_in_threadpool(
        _store, services=services, run_id=run_id, body=body, secret=secret, together=True, _ending=_ending
    )


@with_reserve
def _store(*, services: Services, run_id: int, body: bytes, secret: str, together: bool, _ending: bool) -> p.Accepted:
    """Store the report that the body is, or `together` those that its lines are: all, or none."""
    bodies = reports.lines_of(body) if together else [body]
    sent = reports.parse_lines(bodies) if together else [reports.parse(body)]
    home, attempt = services.settings.home, sent[0].attempt
    with services.database.read() as tx:  # before a file is written, or taken away again, in the name of the run
        lease.prove(tx, run_id, attempt, secret)
    received: list[reports.Received] = []
    try:
        for report, one in zip(sent, bodies, strict=True):
            digest, trace = hashlib.sha256(one).hexdigest(), traces.keep(home, run_id, report)
            received.append(reports.Received(report, digest, trace))
        with _proven(services, run_id, attempt, secret) as tx:
            duplicate = reports.store(tx, run_id, received, services.terms(), services.clock.stamp())
    except (Refusal, DatabaseError, OSError):
        written = [each.trace for each in received if each.trace is not None]
        if written:
            with services.database.write() as tx:
                for trace in written:
                    traces.discard(tx, trace)
        raise
    return p.Accepted(duplicate=duplicate)


@router.post("/runs/{run_id}/checkpoint")
@with_reserve
def checkpoint(
    services: ServicesDep, run_id: RowId, body: p.CheckpointReport, secret: Secret = "", _ending: Ending = False
) -> p.Accepted:
    """Register a checkpoint, and forget those that do not stay beside it."""
    with _proven(services, run_id, body.attempt, secret) as tx:
        row, at = lease.hold(tx, run_id, body.attempt, services.terms()), services.clock.stamp()
        runs.require_step(row, body.step, done=True)
        duplicate = checkpoints.register(tx, run_id, body, at)
        retention.forget(tx, run_id, body.attempt, row["config"], at)
        return p.Accepted(duplicate=duplicate, kept=retention.kept(tx, run_id, row["config"], body.store))


@router.post("/runs/{run_id}/finish")
@with_reserve
def finish(services: ServicesDep, run_id: RowId, body: p.Finish, secret: Secret = "") -> p.Accepted:
    """End the attempt."""
    with _proven(services, run_id, body.attempt, secret) as tx:
        return p.Accepted(duplicate=attempts.finish(tx, run_id, body, services.terms(), services.clock.stamp()))


@router.post("/runs/{run_id}/fail")
@with_reserve
def fail(services: ServicesDep, run_id: RowId, body: p.Fail, secret: Secret = "") -> p.Accepted:
    """End the attempt as failed."""
    with _proven(services, run_id, body.attempt, secret) as tx:
        return p.Accepted(duplicate=attempts.fail(tx, run_id, body, services.terms(), services.clock.stamp()))
