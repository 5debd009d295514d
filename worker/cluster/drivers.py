"""With a cluster a worker is several processes: one for each run under way, and one that waits for the next.

Each holds one lease and ends with its run, so a run that hangs ends its own process alone. The parent only keeps one waiting.
"""

import json
import logging
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence

from worker.process import Process

log = logging.getLogger(__name__)

LINE = "--driver-line"
"""Given to a driver alone: the number of the pipe on which it says what the cluster computes on, and which it closes once a run has places."""

KNOWN = "--computes-on"
"""Given to a later driver: what an earlier one said."""

_TICK = 0.1
_PAUSE = 5.0  # seconds before the next one starts after one that failed


class Driver:
    """One of the processes, started at once, in a session of its own: Ctrl-C reaches the parent alone."""

    def __init__(self, command: Sequence[str], known: str) -> None:
        self._line, theirs = os.pipe()
        command = [*command, LINE, str(theirs), *([KNOWN, known] if known else [])]
        self.process = subprocess.Popen(command, pass_fds=[theirs], stdin=subprocess.DEVNULL, start_new_session=True)
        os.close(theirs)
        self.said = ""
        self.waits = True

    def listen(self) -> None:
        """Hear what it has said so far."""
        while self.waits and select.select([self._line], [], [], 0)[0]:
            if said := os.read(self._line, 4096):
                self.said += said.decode()
            else:
                self.waits = False
                os.close(self._line)


def lead(command: Sequence[str], process: Process) -> int:
    """Keep one driver waiting, started by this command, until asked to end; then ask them all, and wait for them. The exit code.

    It is that of the first driver if it could not start: a later one is tried again.
    """
    drivers, known, not_before = list[Driver](), "", 0.0
    while not process.shutting_down():
        for driver in list(drivers):
            code = driver.process.poll()
            driver.listen()
            known = driver.said or known
            if code is None:
                continue
            drivers.remove(driver)
            if code and not known:
                return code
            if code:
                log.warning("a driver of the Ray cluster (process %d) ended with %d", driver.process.pid, code)
                not_before = time.monotonic() + _PAUSE
        if not any(driver.waits for driver in drivers) and time.monotonic() >= not_before:
            drivers.append(Driver(command, known))
        time.sleep(_TICK)
    _end(drivers, process)
    return 0


def _end(drivers: Sequence[Driver], process: Process) -> None:
    asked = 0
    while running := [driver for driver in drivers if driver.process.poll() is None]:
        if asked < 1 + process.hurried():
            asked += 1
            for driver in running:
                driver.process.send_signal(signal.SIGTERM)
        time.sleep(_TICK)


class ParentLine:
    """A driver's end of the line to its parent."""

    def __init__(self, number: int) -> None:
        self._number: int | None = number

    def connected(self, computes_on: tuple[str, int | None]) -> None:
        """Say that it is connected to the cluster, and what is computed on there, in words and bytes of memory."""
        if self._number is not None:
            os.write(self._number, json.dumps(computes_on).encode())

    def placed(self) -> None:
        """Say, once, that its run has the places that it needs: another driver may ask for work."""
        if self._number is not None:
            os.close(self._number)
            self._number = None
