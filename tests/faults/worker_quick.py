"""A worker that beats every fifth of a second, and whose process is replaced by a fork of one that has imported.

A real worker's process executes itself, with the same process id (test_hangs.py looks at one that does). Here the process that the
test sees starts another at each such moment, gives signals on, and ends as the last one did; what it started ends with it.
"""

import ctypes
import os
import runpy
import signal
import sys

import worker.main  # noqa: F401 — before the first fork
from tests import nursery, zygote
from worker import lease

_AGAIN, _PDEATHSIG = 113, 1


def _run() -> None:
    """As the process that is to be replaced; or as one that it spawns."""
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
    lease.LONGEST_INTERVAL = 0.2
    os.execv = lambda *_: os._exit(_AGAIN)  # type: ignore[assignment]
    if code := zygote.fork_a_nursery():
        nursery.run(code)
        return
    sys.modules.pop("worker.main")
    runpy.run_module("worker.main", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    status = _AGAIN
    while status == _AGAIN:
        child = os.fork()
        if child == 0:
            _run()
            sys.exit()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _, child=child: os.kill(child, number))  # type: ignore[misc]
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    sys.exit(status)
