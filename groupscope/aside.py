"""A process beside the training that works off what the training hands over, in its order.

A thread would take its turns with Python's lock, which the training needs for every kernel that it starts.
"""

import atexit
import logging
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import Any

log = logging.getLogger("groupscope")

MOST_BYTES = 2**31  # that may wait here; more than this is behind by many steps
SMALL_BYTES = 2**16  # up to this it may always wait: metrics, and how it ended
_NICE = 15  # takes what the training leaves, and is not starved by one that leaves nothing
_OF_THE_TRAINING = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}
"""Signals that reach all processes of a terminal or a job; the training may answer them with a checkpoint."""
PATIENCE = 120.0  # seconds that a training waits at its end for a process that takes nothing, as its disk hangs, say
_LOOKS = 2.0  # seconds between two looks whether the training is still there


class Guard:
    """Calls what must not end a training. The first mistake is logged."""

    def __init__(self) -> None:
        self._broken = False

    def __call__(self, what: Callable[..., Any], *args: Any) -> bool:
        """Call it with these arguments; whether that went well."""
        try:
            what(*args)
        except Exception:  # the boundary between a record and the training that it must not end
            if not self._broken:
                log.exception("a part of this run is not recorded; the training goes on")
            self._broken = True
            return False
        return True


class Aside:
    """An object of `made` that lives in another process, where its methods are called one after the other. `made` and all arguments are
    pickled. What is logged there is logged here.

    A program that ends without `close` has the method `ended` called. Raises OSError if no process can be started.
    """

    def __init__(self, made: Callable[..., Any], *args: Any) -> None:
        packed = pickle.dumps((made, args))  # before there is a process that would wait for it
        self._ours, theirs = Pipe()
        path = os.pathsep.join(filter(None, sys.path))
        command = [sys.executable, "-P", "-m", __name__, str(theirs.fileno())]
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_THE_TRAINING)  # which the process inherits
        try:
            with theirs:
                self._process = subprocess.Popen(
                    command, env=os.environ | {"PYTHONPATH": path}, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
                )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._training = os.getpid()
        self._waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._bytes = 0  # of these; the thread alone takes away from it
        self._lock = threading.Lock()
        self._gone = False  # nobody reads any more
        self._writer = threading.Thread(target=self._write, name="groupscope-write", daemon=True)
        self._reader = threading.Thread(target=self._read, name="groupscope-read", daemon=True)
        self._writer.start()
        self._reader.start()
        self._hand_over(packed)
        atexit.register(self._at_exit)

    def call(self, method: str, *args: Any) -> None:
        """Have a method called there. Raises BufferError if too much waits, and whatever pickle raises."""
        self._hand_over(pickle.dumps((method, args)))

    def close(self) -> None:
        """Wait until all is done and the process has ended. One that takes nothing for `PATIENCE` seconds is ended."""
        atexit.unregister(self._at_exit)
        self._waiting.put(b"")
        waits = -1
        while self._writer.is_alive() and waits != self._bytes:
            waits = self._bytes
            self._writer.join(PATIENCE)
        try:
            self._process.wait(0 if self._writer.is_alive() else PATIENCE)
        except subprocess.TimeoutExpired:
            log.warning(
                "the process that records takes nothing any more, and is ended: the rest of this run is not recorded"
            )
            self._process.kill()
        self._writer.join(_LOOKS)
        if self._process.returncode and not self._gone:  # it died with the last messages in the pipe, which took them
            self._lost()
        self._reader.join(_LOOKS)

    def _at_exit(self) -> None:
        if os.getpid() != self._training:  # a process that was forked from it, and has not its threads
            return
        self.call("ended", None)
        self.close()

    def _hand_over(self, packed: bytes) -> None:
        with self._lock:
            if self._gone:
                return
            if len(packed) > SMALL_BYTES and self._bytes + len(packed) > MOST_BYTES:
                raise BufferError(f"{self._bytes:,} bytes wait for the process that records")
            self._bytes += len(packed)
        self._waiting.put(packed)

    def _write(self) -> None:
        while packed := self._waiting.get():
            try:
                self._ours.send_bytes(packed)
            except OSError:
                self._lost()
                return
            with self._lock:
                self._bytes -= len(packed)
        try:
            self._ours.send_bytes(b"")
        except OSError:
            self._lost()

    def _lost(self) -> None:
        with self._lock:
            self._gone, self._waiting = True, queue.SimpleQueue()
        log.warning(
            "the process that records has ended (status %d): the rest of this run is not recorded; the training goes on",
            self._process.wait(),
        )

    def _read(self) -> None:
        while True:
            try:
                name, level, text = self._ours.recv()
            except (EOFError, OSError):
                return
            logging.getLogger(name).log(level, "%s", text)


class _Passed(logging.Handler):
    """Gives what is logged to the training's process."""

    def __init__(self, to: Connection) -> None:
        super().__init__(logging.INFO)
        self._to = to

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):  # the training has ended
            self._to.send((record.name, record.levelno, self.format(record)))


def main() -> None:
    """In the process: make the object, call its methods, until the training has no more."""
    os.nice(_NICE)
    training = os.getppid()
    pipe = Connection(int(sys.argv[1]))
    logging.getLogger().addHandler(_Passed(pipe))
    logging.getLogger("groupscope").setLevel(logging.INFO)
    safely = Guard()
    try:
        made, args = pickle.loads(pipe.recv_bytes())  # noqa: S301 — of the training that started this process, as what comes after
        worker = made(*args)
    except Exception:
        log.exception("this run is not recorded; the training goes on")
        raise SystemExit(1) from None
    try:
        # the other end is open in a data loader's processes too, which may outlive the training
        while pipe.poll(_LOOKS) or os.getppid() == training:
            if not pipe.poll():
                continue
            packed = pipe.recv_bytes()
            if not packed:
                return
            method, args = pickle.loads(packed)  # noqa: S301
            safely(getattr(worker, method), *args)
    except EOFError:
        pass
    safely(worker.ended, None)


if __name__ == "__main__":
    main()
