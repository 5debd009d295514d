"""The worker's process: when it was asked to end, and how it ends even if one of its threads hangs."""

import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

log = logging.getLogger(__name__)

_ASKS = (signal.SIGTERM, signal.SIGINT)
_NOT_OVER = 75  # sysexits.h: try again later


class Process:
    """This process, as signals and a watch see it."""

    def __init__(self, arguments: Sequence[str], *, once: bool = False, parent: int | None = None) -> None:
        """`once`: it was started for one run. `parent`: the process that starts another in its place, and without which it is to end."""
        self._arguments, self._once, self._parent = arguments, once, parent
        self.last = False  # what it works on is all that it was started for: nothing takes its place
        self._asked = list[int]()  # the signals, of which each thread may find some
        self._pipe: tuple[int, int] | None = None

    def listen(self) -> None:
        """Notice SIGTERM and SIGINT from now on, to be called in the main thread.

        They come through a pipe: Python's own handlers wait for the main thread, which may hang in a kernel.
        """
        self._pipe = os.pipe()
        for end in self._pipe:
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        for number in _ASKS:
            signal.signal(number, lambda *_: None)

    def shutting_down(self) -> bool:
        """Whether it was asked to end, or its parent is gone."""
        return self._times_asked() > 0 or (self._parent is not None and os.getppid() != self._parent)

    def hurried(self) -> bool:
        """Whether it was asked to end a second time."""
        return self._times_asked() > 1

    def _times_asked(self) -> int:
        if self._pipe is not None:
            with suppress(BlockingIOError):
                self._asked.extend(number for number in os.read(self._pipe[0], 512) if number in _ASKS)
        return len(self._asked)

    def exit_code(self, over: bool) -> int:
        """0; of a process for one run 75 if that run may not be `over`, so that a launcher starts another."""
        return _NOT_OVER if self._once and not over else 0

    def end(self, over: bool = False) -> NoReturn:
        """End at once, whatever other threads do, with what it started. A fresh process takes its place unless it was asked to end
        or has done what it was started for; `over` is as for `exit_code`."""
        _kill_children()
        if self.last:
            os._exit(self.exit_code(over))
        if not self.shutting_down():
            log.warning("starting again with a clean process")
        if self.shutting_down():  # perhaps only now
            os._exit(self.exit_code(over=False))
        if self._parent is not None:
            os._exit(1)  # the parent starts another
        # The same process id: its supervisor sees no end, and a worker that was started by hand goes on.
        os.execv(sys.executable, [sys.executable, "-m", "worker.main", *self._arguments])  # noqa: S606


def _kill_children() -> None:
    """What this process started, and its process groups; where there is no /proc they end by themselves, at their time limits."""
    own = os.getpid()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            parent, group = map(int, stat.read_text().rpartition(")")[2].split()[1:3])
            if parent == own:
                child = int(stat.parent.name)
                os.killpg(group, signal.SIGKILL) if group != os.getpgrp() else os.kill(child, signal.SIGKILL)
                for _ in range(40):
                    if os.waitpid(child, os.WNOHANG)[0]:
                        break
                    time.sleep(0.05)  # one that the kernel holds, as on a disk that is away, stays behind
