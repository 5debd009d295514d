"""A server's log: lines that repeat themselves are written once and counted, so that nobody can fill the disk with them."""

import logging
import sys
import time

_EACH = 60.0  # seconds
_PASSED = 3  # of the same line in that time
_KNOWN = 256  # lines that are remembered

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class Repeats(logging.Filter):
    """Passes a line three times a minute; the first one after that minute says how many were left out."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}  # line -> since when, how often

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written."""
        line, now = (record.name, record.getMessage()), time.monotonic()
        since, times = self._seen.pop(line, (now, 0))
        if now - since >= _EACH:
            if times > _PASSED:
                record.msg, record.args = f"{line[1]} ({times - _PASSED} more like this were left out)", ()
            since, times = now, 0
        self._seen[line] = (since, times + 1)
        if len(self._seen) > _KNOWN:
            del self._seen[next(iter(self._seen))]
        return times < _PASSED


def set_up_log() -> None:
    """Write to stderr, which `groupscope up` keeps in a file."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(Repeats())
    logging.basicConfig(level=logging.INFO, format=FORMAT, handlers=[handler])
    server = logging.getLogger("uvicorn.error")
    server.setLevel(
        logging.WARNING
    )  # what it says of each connection has the client's port in it: no two lines are the same
    server.addFilter(Repeats())  # in the dashboard Streamlit gives it a handler of its own
