"""What a scrape reads: runs, queue, workers, sizes, and the requests by route.

Every query reads an index or a few rows, and none waits for a writer.
"""

import platform
import shutil
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import get_args

from fastapi import Request, Response
from fastapi.routing import APIRoute
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Connection, func, select
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.contract.records import Status
from backend.runs.store import DELETED
from backend.services import Services
from backend.storage.tables import run, run_event, worker
from backend.workers import DAY

PATH = "/metrics"
WORKERS = 200  # that have a line of their own


class Exposition(Response):
    """Prometheus' text format."""

    media_type = "text/plain; version=1.0.0; charset=utf-8"


def registry_of(services: Services) -> CollectorRegistry:
    """What one application counts and knows; requests are counted into it, too."""
    disable_created_metrics()  # type: ignore[no-untyped-call]  # a second line for each counter, which says when it began
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(State(services))
    return registry


def exposition(request: Request) -> Exposition:
    """All of it, for Prometheus."""
    return Exposition(generate_latest(request.app.state.registry))


class State(Collector):
    """Reads the backend's state whenever it is asked for."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def collect(self) -> Iterator[Metric]:
        """The present values."""
        with self._services.database.read() as tx:
            found = [*self._runs(tx), *self._workers(tx)]
        yield from found
        yield from self._sizes()
        broadcast = self._services.broadcast
        yield _one("groupscope_event_streams", "Event streams that are open.", broadcast.open)
        yield _one("groupscope_event_streams_most", "Event streams that may be open.", broadcast.most)
        build = {"version": version("groupscope"), "python": platform.python_version()}
        yield InfoMetricFamily("groupscope_build", "This program.", build)

    def _runs(self, tx: Connection) -> Iterator[Metric]:
        counted: dict[str, int] = dict(tx.execute(select(run.c.status, func.count()).group_by(run.c.status)).all())
        states = {state: counted.get(state, 0) for state in get_args(Status)}
        yield _each("groupscope_runs", "Runs by state; `queued` is the length of the queue.", "state", states)
        yield _one("groupscope_runs_being_removed", "Deleted runs that still have records.", counted.get(DELETED, 0))
        queued_at = (  # a run that was paused, retried or lost waits since its last change, not since it was made
            select(run_event.c.created_at)
            .where(run_event.c.run_id == run.c.id, run_event.c.kind == "status")
            .order_by(run_event.c.id.desc())
            .limit(1)
            .scalar_subquery()
        )
        waiting = select(func.min(func.coalesce(queued_at, run.c.created_at))).where(run.c.status == "queued")
        since = tx.execute(waiting).scalar_one()
        seconds = 0.0 if since is None else max(0.0, (self._services.clock.stamp() - since).total_seconds())
        waited = "How long the oldest queued run has waited; 0 if none is queued."
        yield _one("groupscope_queue_oldest_seconds", waited, seconds)

    def _workers(self, tx: Connection) -> Iterator[Metric]:
        now = self._services.clock.seconds()
        heard = worker.c.seen_at > now - DAY
        alive = worker.c.seen_at >= now - self._services.settings.lease_seconds
        counts = tx.execute(select(func.count(), func.count().filter(alive)).where(heard)).one()
        states = {"alive": counts[1], "silent": counts[0] - counts[1]}
        yield _each("groupscope_workers", "Workers heard of in the last day; alive: within a lease.", "state", states)
        latest = select(worker.c.name, worker.c.seen_at).where(heard).order_by(worker.c.seen_at.desc()).limit(WORKERS)
        silence = {name: max(0.0, now - seen_at) for name, seen_at in tx.execute(latest)}
        since = f"Since a worker was last heard of; the {WORKERS} latest of the last day."
        yield _each("groupscope_worker_silence_seconds", since, "worker", silence)

    def _sizes(self) -> Iterator[Metric]:
        url = self._services.database.reader.url
        if self._services.database.is_sqlite and url.database:
            file = Path(url.database)
            wal = file.with_name(f"{file.name}-wal")
            yield _one("groupscope_database_bytes", "Size of the database file.", file.stat().st_size)
            yield _one(
                "groupscope_wal_bytes", "Size of its write-ahead log.", wal.stat().st_size if wal.exists() else 0
            )
        disk = shutil.disk_usage(self._services.settings.home)
        yield _one("groupscope_home_free_bytes", "Free on the disk of the home.", disk.free)
        yield _one("groupscope_home_disk_bytes", "Size of the disk of the home.", disk.total)


def _one(name: str, description: str, value: float) -> Metric:
    return GaugeMetricFamily(name, description, value)


def _each(name: str, description: str, label: str, values: Mapping[str, float]) -> Metric:
    gauge = GaugeMetricFamily(name, description, None, [label])
    for of, value in values.items():
        gauge.add_metric([of], value)
    return gauge


METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
WORKER_MESSAGES = ("claim", "start", "heartbeat", "report", "reports", "checkpoint", "finish", "fail")
NO_ROUTE = "none"
"""The label of a path without a route, and of a request that was refused before its route was looked up."""
_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
_WORKER = "/api/v1/worker/"


class Requests:
    """ASGI middleware, the outermost, so that refusals count, too. No label is a text that a client chooses."""

    def __init__(self, app: ASGIApp, *, registry: CollectorRegistry) -> None:
        self.app = app
        self._answered = Counter(
            "groupscope_http_requests",
            "Answers by route and status; 0: the client left before any.",
            ["route", "method", "status"],
            registry=registry,
        )
        self._seconds = Histogram(
            "groupscope_http_answer_seconds",
            "From a request's header to the beginning of its answer.",
            ["route", "method"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self._messages = Counter(
            "groupscope_worker_messages",
            "Messages of workers: claims, heartbeats, reports, checkpoints and ends; accepted or refused.",
            ["message", "outcome"],
            registry=registry,
        )
        for message in WORKER_MESSAGES:  # a line that begins with its first refusal would hide that one from rate()
            for outcome in ("accepted", "refused"):
                self._messages.labels(message, outcome)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and count it when its answer begins."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.monotonic(), 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._count(scope, status, time.monotonic() - began)
            await send(message)

        try:
            await self.app(scope, receive, noting)
        finally:
            if not status:
                self._count(scope, 0, time.monotonic() - began)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        found = scope.get("route")
        route = found.path if isinstance(found, APIRoute) else NO_ROUTE
        method = scope["method"] if scope["method"] in METHODS else "other"
        self._answered.labels(route, method, status).inc()
        self._seconds.labels(route, method).observe(seconds)
        if route.startswith(_WORKER) and status != 405:
            self._messages.labels(route.rpartition("/")[2], "accepted" if 0 < status < 400 else "refused").inc()
