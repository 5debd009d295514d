"""A server's log: lines say which run they are about, and those that repeat themselves are counted, so that nobody fills the disk with them."""

import logging
import sys
import threading
import time
from contextvars import ContextVar

from starlette.types import ASGIApp, Receive, Scope, Send

from backend.contract.log import LineFormatter, subject

_EACH = 60.0  # seconds
_PASSED = 3  # of the same line in that time
_KNOWN = 256  # lines that are remembered

_about: ContextVar[Scope | None] = ContextVar("about", default=None)  # the request, or what stands for one


class OfRequest:
    """ASGI middleware: what is written while a request is answered is about the run in its path."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on. Which run it names is known once its route is found, which the scope then says."""
        _about.set(scope)
        await self.app(scope, receive, send)


def about_run(run_id: int | str | None) -> None:
    """From here on this thread writes about a run, or about none."""
    _about.set(None if run_id is None else {"path_params": {"run_id": run_id}})


def about_attempt(number: int) -> None:
    """The attempt of that run."""
    if (scope := _about.get()) is not None:
        scope["attempt"] = number


def _subject() -> str:
    scope = _about.get() or {}
    run_id = str((scope.get("path_params") or {}).get("run_id", ""))
    known = run_id.isascii() and run_id.isdigit() and len(run_id) < 20
    return subject(run_id, scope.get("attempt")) if known else ""


class Repeats(logging.Filter):
    """Passes a line three times a minute; the first one after that minute says how many were left out."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[str, str, str], tuple[float, int]] = {}  # line -> since when, how often
        self._lock = threading.Lock()  # a handler takes its own only after its filters

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written."""
        line, now = (record.name, _subject(), record.getMessage()), time.monotonic()
        with self._lock:
            since, times = self._seen.pop(line, (now, 0))
            if now - since >= _EACH:
                if times > _PASSED:
                    record.msg, record.args = f"{line[2]} ({times - _PASSED} more like this were left out)", ()
                since, times = now, 0
            self._seen[line] = (since, times + 1)
            if len(self._seen) > _KNOWN:
                del self._seen[next(iter(self._seen))]
            return times < _PASSED


def set_up_log() -> None:
    """Write to stderr, which `groupscope up` keeps in a file."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(Repeats())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    server = logging.getLogger("uvicorn.error")
    # what it says of each connection has the client's port in it: no two lines are the same
    server.setLevel(logging.WARNING)
    server.addFilter(Repeats())  # in the dashboard Streamlit gives it a handler of its own
    known = [one for one in logging.root.manager.loggerDict.values() if isinstance(one, logging.Logger)]
    for each in [logging.root, *known]:
        for one in each.handlers:  # Streamlit's loggers have one each
            one.setFormatter(LineFormatter(_subject))
