"""Counts requests by route and status, and the messages of workers by whether they were accepted."""

import time

from fastapi.routing import APIRoute
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
WORKER_MESSAGES = ("claim", "start", "heartbeat", "report", "checkpoint", "finish", "fail")
NO_ROUTE = "none"
"""The label of a path that is no route, and of what was refused before a route was looked for."""
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
