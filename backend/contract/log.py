"""Lines of a log: each says which run and attempt it belongs to, and no text in it can begin another line or steer a terminal."""

import logging
from collections.abc import Callable

LONGEST = 8_000  # characters of a message, and of each line of a traceback
_TRACEBACK = 64_000


class LineFormatter(logging.Formatter):
    """Time, level, logger, run and attempt, message; the lines of a traceback follow, indented, with run and attempt, too."""

    def __init__(self, subject: Callable[[], str]) -> None:
        super().__init__()
        self._subject = subject

    def format(self, record: logging.LogRecord) -> str:
        """One record."""
        lines = [record.getMessage()]
        if record.exc_info:
            lines += _cut(self.formatException(record.exc_info), _TRACEBACK).split("\n")
        if record.stack_info:
            lines += _cut(record.stack_info, _TRACEBACK).split("\n")
        run = self._subject()
        first, *others = (f"{run}{_printable(_cut(line, LONGEST))}" for line in lines)
        head = f"{self.formatTime(record)} {record.levelname} {record.name}: "
        return "\n  ".join([f"{head}{first}", *others])


def subject(run_id: int | str, attempt: int | None = None) -> str:
    """The beginning of a line that belongs to a run, and to an attempt if one is known."""
    return f"[run {run_id}] " if attempt is None else f"[run {run_id} attempt {attempt}] "


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[: most // 2]} … {len(text) - most:,} characters are left out … {text[-most // 2 :]}"


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
