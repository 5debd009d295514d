"""Processes that `multiprocessing` spawns, without the seconds that each takes to import torch: forked from one that has imported.

What spawns them asks a process of its own, the nursery, which has imported and has run nothing. The nursery forks twice, and the one
between ends, so that the new process is a child of the one that asked, as a spawned one is: it can be waited for and killed, has the
files that it was given, the environment and the signal mask of that moment, and ends with its parent if it asks for that.
"""

import ctypes
import fcntl
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from multiprocessing import util

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER, linux/prctl.h: who is orphaned below a process becomes its child
_OUTPUTS = (1, 2)
_MOST_FILES = 250
_plain = util.spawnv_passfds


class Nursery:
    """The wire to it; while this process spawns, it asks there."""

    def __init__(self, wire: socket.socket) -> None:
        self._wire, self._lock = wire, threading.Lock()
        util.spawnv_passfds = self._spawn

    def _spawn(self, path: bytes, args: Sequence[str], files: Sequence[int]) -> int:
        if "spawn_main" not in args[-2]:
            return _plain(path, args, files)  # what tracks shared memory: a small one
        numbers = [*map(int, files), *_OUTPUTS]
        blocked = [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())]
        request = {
            "args": args[-2:],
            "files": numbers,
            "environment": dict(os.environ),
            "blocked": blocked,
            "path": sys.path,
        }
        with self._lock:
            _take_orphans(True)
            socket.send_fds(self._wire, [json.dumps(request).encode()], numbers)
            pid = int(self._wire.recv(32))
            _take_orphans(False)
        return pid


def _take_orphans(take: bool) -> None:
    ctypes.CDLL(None).prctl(_SUBREAPER, int(take))


def born(wire: socket.socket, parent: int) -> str | None:
    """In the nursery: fork on request, until the parent has gone: None. In each new process: what it runs."""
    while True:
        request, files, _, _ = socket.recv_fds(wire, 1 << 20, _MOST_FILES)
        if not request:
            return None
        if (between := os.fork()) == 0:
            if os.fork():
                os._exit(0)
            break
        os.waitpid(between, 0)
        for file in files:
            os.close(file)
    asked = json.loads(request)
    while os.getppid() != parent:
        os.sched_yield()
    wire.send(str(os.getpid()).encode())
    wire.close()
    out_of_the_way = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 1000) for file in files]
    for file in files:
        os.close(file)
    for number, file in zip(asked["files"], out_of_the_way, strict=True):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.path[:] = asked["path"]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, asked["blocked"])
    with open("/proc/self/comm", "w") as name:
        name.write("spawn_main")
    code, flag = asked["args"]
    sys.argv = ["-c", flag]
    return str(code)


def run(code: str) -> None:
    """What `python -c` would."""
    exec(code, {"__name__": "__main__"})  # noqa: S102 — multiprocessing's own line
