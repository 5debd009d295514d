"""An HTTP server that stays reachable while others open connections in numbers, or leave them half open.

uvicorn has neither a deadline for a request's header nor a bound that leaves room for the next request: `limit_concurrency`
counts connections and then refuses every request, also the one that asks whether the server lives.
"""

import asyncio
import logging
import resource
import socket
from contextlib import ExitStack

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from backend.contract.home import CannotStart
from backend.server.log import OfRequest

log = logging.getLogger(__name__)

# For a request's header to arrive whole, between two pieces of a body, for a client to take a piece of its answer.
SECONDS = {"header": 10.0, "body": 30.0, "reader": 60.0}
_KEPT_FILES = 256  # for the database's connections, uploads, traces, logs
_MOST, _LEAST = 4096, 64  # connections
_AT_ONCE = 20  # accepted in one turn; up to four turns of them may be open above the bound before any is closed
_QUEUE = 2048  # that the kernel keeps for the next turns


def raise_file_limit() -> None:
    """Allow this process as many open files as it may allow itself: a connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard if hard != resource.RLIM_INFINITY else _MOST + _KEPT_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def places() -> int:
    """How many connections are held at once: what the limit on open files leaves."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else max(_LEAST, min(_MOST, soft - _KEPT_FILES))


class _State(ServerState):
    """What the connections of one server share."""

    def __init__(self) -> None:
        super().__init__()
        # for their clients; the one that was heard of longest ago comes first
        self.waiting: dict[Connection, None] = {}


class Connection(H11Protocol):
    """A connection that is closed when its client is late, or when it waits for its client and another one needs the place."""

    server_state: _State
    _late: asyncio.TimerHandle | None = None
    _deadline_of = ""  # what the deadline is for

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn narrows it
        """Count it; beyond the bound, close the one that has waited longest for its client."""
        super().connection_made(transport)
        self._watch()
        if len(self.connections) > places():
            self.logger.warning("%d connections are open: one that waits for its client is closed", places())
            next(iter(self.server_state.waiting), self)._close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._expect("")
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Handle what arrived, and see what is still to come."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """The next request may come; uvicorn gives it five seconds to begin."""
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        """The client does not read its answer. It has a deadline: a transaction of the database may be open meanwhile."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """It reads again."""
        super().resume_writing()
        self._watch()

    def _watch(self) -> None:
        """See what the connection waits for now, and put it behind those that have waited longer."""
        # the first: a WebSocket, with deadlines of its own
        if self not in self.connections or self.transport.is_closing():
            self._expect("")
        elif self.flow.write_paused:
            self._expect("reader")
        elif self.conn.their_state is h11.IDLE:
            self._expect("header")
        else:
            self._expect("body" if self.conn.their_state is h11.SEND_BODY else "")

    def _expect(self, what: str) -> None:
        self.server_state.waiting.pop(self, None)
        if what:
            self.server_state.waiting[self] = None
        if what == self._deadline_of == "header":
            return  # a header that arrives in small pieces has one deadline
        if self._late is not None:
            self._late.cancel()
        self._deadline_of = what
        self._late = self.loop.call_later(SECONDS[what], self._is_late) if what else None

    def _is_late(self) -> None:
        if self._deadline_of == "body" and self.flow.read_paused:  # we are the ones who do not read
            self._watch()
        else:
            self._close()

    def _close(self) -> None:
        self._expect("")
        self.transport.abort()


class _Server(uvicorn.Server):
    """Takes few connections in one turn, so that the bound holds, from a long queue, so that nobody is turned away."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.server_state: _State = _State()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or []:
            listening.listen(_QUEUE)
            log.info("listening on %s, port %d", *listening.getsockname()[:2])


def listen(host: str, port: int) -> list[socket.socket]:
    """Sockets bound to the address. Raises CannotStart."""
    with ExitStack() as opened:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            sockets = []
            for family, kind, protocol, _, address in dict.fromkeys(found):
                one = opened.enter_context(socket.socket(family, kind, protocol))
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                one.bind(address)
                sockets.append(one)
        except OSError as error:
            raise CannotStart(
                f"{host}, port {port} cannot be listened on ({error.strerror or error}): stop the program that has the port, "
                "or choose another address or port with --host and --port"
            ) from None
        opened.pop_all()
    return sockets


def serve(app: ASGIApp, sockets: list[socket.socket], *, message_bytes: int | None = None) -> None:
    """Serve until interrupted; WebSockets, too, if it is said how large a message may be."""
    config = uvicorn.Config(
        OfRequest(app),
        http=Connection,
        ws="none" if message_bytes is None else "websockets-sansio",
        ws_max_size=message_bytes or 0,
        ws_per_message_deflate=False,
        backlog=_AT_ONCE,
        access_log=False,
        log_config=None,  # the process has set its log up
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=3,
    )
    _Server(config).run(sockets=sockets)
