"""A process for the reward functions: started, fed, listened to, and killed when it hangs.

It guards against accidents: a call has a time limit; memory, file sizes and new processes have bounds; and no secret of the worker's
environment gets in. What it does not cover: it is not a sandbox for hostile code. Network access is not blocked, and a function can
read and write every file that the worker's user can. So only built-in functions run here, those that the operator named, and those
that the worker's user put into the folder of rewards.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from backend.contract.base import Json

LOOK_SECONDS = 0.5
"""How often a waiting caller is asked whether to go on."""

START_LIMIT = 120.0
"""Seconds for the process to start or to import a library; a cold disk can be slow."""

FUNCTIONS = "worker.rewards.functions"
PRINTED_KEPT = 64 * 1024
_LONGEST_REPLY = 64 * 1024
_LONGEST_READY = 64 * 2**20  # the texts of all files of the folder, each letter escaped
_CHUNK = 64 * 1024
_ROOT = Path(__file__).parents[2]
_MAIN = "import sys; sys.path.insert(0, sys.argv[1]); from worker.rewards.process import main; main(sys.argv[2])"
_KEPT_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH")
_OVERTIME = (signal.SIGALRM, signal.SIGXCPU)


class ChildLost(Exception):
    """The process hung and was killed, or died. The message begins with `reward_timeout` or `reward_crash`."""


class ChildRefused(Exception):
    """A function cannot be imported; the message says which and why, then the traceback."""


class ChildNotReady(Exception):
    """The process did not start, or could not import what a batch needs, or had died since the last batch."""


class Child:
    """One process, started at once. After ChildLost, ChildRefused or ChildNotReady it is gone.

    While it is waited for, `waiting` is called now and then. It may raise, and then the process is gone, too.
    """

    def __init__(
        self,
        settings: Mapping[str, Json],
        functions_module: str = FUNCTIONS,
        waiting: Callable[[], None] = lambda: None,
    ) -> None:
        stdin, self._requests = os.pipe()
        self._replies, stdout = os.pipe()
        self._prints, stderr = os.pipe()
        # Nothing secret, and no pools of threads.
        kept = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
        self._process = subprocess.Popen(
            # -I: nothing from the working directory, the user's site or PYTHON* variables gets in. -u: a crash loses no print.
            [sys.executable, "-I", "-u", "-W", "ignore", "-c", _MAIN, str(_ROOT), functions_module],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env={**kept, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            cwd="/",
            start_new_session=True,
        )
        self._unsent = memoryview(b"")
        self._received = bytearray()
        self._printed = bytearray()
        self._truncated = False
        self._selector = selectors.DefaultSelector()
        for ours, theirs in ((self._requests, stdin), (self._replies, stdout), (self._prints, stderr)):
            os.close(theirs)
            os.set_blocking(ours, False)
        self._selector.register(self._replies, selectors.EVENT_READ, self._read_replies)
        self._selector.register(self._prints, selectors.EVENT_READ, self._read_prints)
        self.ready = self._send(settings, waiting)
        """Its answer to the settings."""

    def outcomes(
        self, batch: Mapping[str, Json], *, limits: Sequence[float], waiting: Callable[[], None]
    ) -> Iterator[list[Json]]:
        """The outcomes of each call, in order, as they come; `process.py` says what is in them.

        Raises ChildLost for the call after the last outcome, if that took longer than its limit in seconds or ended the
        process; ChildNotReady if no call was made.
        """
        self._send(batch, waiting)
        for limit in limits:
            outcomes = self._receive(limit, waiting)
            if not isinstance(outcomes, list):
                raise self._lost("reward_crash: the function wrote into the pipe of the results")
            yield outcomes

    def take_printed(self) -> str:
        """What the functions printed since the last call: at most 64 KiB, and a note if there was more."""
        text = self._printed.decode(errors="replace") + (" … (truncated)" if self._truncated else "")
        self._printed.clear()
        self._truncated = False
        return text

    def close(self) -> None:
        """Kill the process and all that it started."""
        if self._selector.get_map() is None:
            return
        # A process that was not waited for keeps its id, so this cannot hit another group.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._selector.close()
        for descriptor in (self._requests, self._replies, self._prints):
            os.close(descriptor)

    def _send(self, message: Mapping[str, Json], waiting: Callable[[], None]) -> Json:
        """Send a line and wait until the process is ready for the calls that it asks for. Raises ChildRefused, ChildNotReady."""
        self._unsent = memoryview(json.dumps(message).encode() + b"\n")
        self._selector.register(self._requests, selectors.EVENT_WRITE, self._write_requests)
        try:
            answer = self._receive(START_LIMIT, waiting, longest=_LONGEST_READY)
        except ChildLost as lost:
            raise ChildNotReady(str(lost)) from None
        if isinstance(answer, dict) and "unavailable" in answer:
            self.close()
            raise ChildRefused(str(answer["unavailable"]))
        return answer

    def _receive(self, limit: float, waiting: Callable[[], None], longest: int = _LONGEST_REPLY) -> Json:
        deadline = time.monotonic() + limit
        while (end := self._received.find(b"\n")) < 0:
            if len(self._received) > longest:
                raise self._lost("reward_crash: the function wrote into the pipe of the results")
            try:
                waiting()
            except BaseException:
                self.close()
                raise
            left = deadline - time.monotonic()
            ready = self._selector.select(max(0.0, min(left, LOOK_SECONDS)))
            for key, _ in ready:
                key.data()
            # What has arrived counts, however late it is read: this process may itself have been paused. So only a
            # look that began after the deadline and found nothing ends the wait.
            if left <= 0 and all(key.fd != self._replies for key, _ in ready):
                raise self._lost(f"reward_timeout: it took longer than {limit:g} s and was stopped")
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        try:
            reply: Json = json.loads(line)
        except (ValueError, RecursionError):
            raise self._lost("reward_crash: the function wrote into the pipe of the results") from None
        return reply

    def _write_requests(self) -> None:
        try:
            written = os.write(self._requests, self._unsent[:_CHUNK])
        except BrokenPipeError:
            raise self._died() from None
        self._unsent = self._unsent[written:]
        if not self._unsent:
            self._selector.unregister(self._requests)

    def _read_replies(self) -> None:
        chunk = os.read(self._replies, _CHUNK)
        if not chunk:
            raise self._died()
        self._received += chunk

    def _read_prints(self) -> None:
        chunk = os.read(self._prints, _CHUNK)
        if not chunk:
            self._selector.unregister(self._prints)
        room = PRINTED_KEPT - len(self._printed)
        self._printed += chunk[:room]
        self._truncated |= len(chunk) > room

    def _lost(self, reason: str) -> ChildLost:
        self.close()
        return ChildLost(reason)

    def _died(self) -> ChildLost:
        """Say how the process ended, with the end of what it printed: the interpreter's last words are there."""
        with suppress(BlockingIOError, KeyError):
            self._read_prints()
        self.close()
        code = self._process.returncode
        if -code in _OVERTIME:
            return ChildLost("reward_timeout: it took longer than its time and was stopped")
        how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        return ChildLost(f"reward_crash: it ended its process ({how})\n{self.take_printed()[-2048:]}".rstrip())
