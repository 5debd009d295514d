"""Keeps a few programs running and stops them in order, leaving no process behind."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

TICK = 0.2  # seconds between two looks at the programs
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds before a program that ended is started again; doubled each time
STEADY = 60.0  # a program that ran for so long has earned the short pause again
LARGEST_LOG = 16 * 2**20  # bytes; each program has at most two such files
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
# loaded here: nothing may be loaded between fork and exec
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


@dataclass(frozen=True)
class Program:
    """What to run. `grace`: seconds between being asked to stop and being killed."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    grace: float


class Child:
    """One program in a session of its own: Ctrl-C reaches the supervisor alone, a kill reaches the program's children too."""

    def __init__(self, program: Program, log: Path) -> None:
        self.program, self.log = program, log
        self._process: subprocess.Popen[bytes] | None = None
        self._started = self._restart_at = 0.0
        self._pause = FIRST_PAUSE

    @property
    def pid(self) -> int | None:
        """The process that runs now; None between two."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the program; its output is appended to the log."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.program.command,
                env=dict(self.program.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_end_with_parent if _LIBC else None,
            )
        self._started = time.monotonic()

    def ended(self) -> str | None:
        """How the program ended, in words, once after each end; None while it runs or waits for its next start."""
        if self._process is None or (code := self._process.poll()) is None:
            return None
        self._kill_group()
        self._process = None
        if time.monotonic() - self._started >= STEADY:
            self._pause = FIRST_PAUSE
        self._restart_at = time.monotonic() + self._pause
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return f"{how}; starting it again in {self._pause:.0f} s"

    def start_again(self) -> bool:
        """Start the program if it ended and its pause is over."""
        if self._process is not None or time.monotonic() < self._restart_at:
            return False
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        self.start()
        return True

    def stop(self, hurry: Callable[[], bool]) -> None:
        """Ask the program to stop, wait its grace, then kill it and its children if they still run."""
        if self._process is None:
            return
        self._process.terminate()
        deadline = time.monotonic() + self.program.grace
        while self._process.poll() is None and time.monotonic() < deadline and not hurry():
            time.sleep(TICK / 4)
        self._kill_group()
        self._process.wait()
        self._process = None

    def turn_log_over(self) -> None:
        """Begin the log anew if it is large, and keep the one before. The program goes on writing into the same file."""
        with suppress(FileNotFoundError):  # somebody deleted it; the next start of the program makes another
            if self.log.stat().st_size > LARGEST_LOG:
                with suppress(OSError):  # a full disk needs the room more
                    shutil.copyfile(self.log, self.log.with_suffix(".log.1"))
                os.truncate(self.log, 0)

    def last_words(self) -> str:
        """The last line of the log, fit for a terminal; empty if there is none."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - 4096))
                lines = log.read().decode(errors="replace").split("\n")
        except FileNotFoundError:
            return ""
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return "".join(c if c.isprintable() else "\ufffd" for c in last)[:300]

    def _kill_group(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL) if self._process else None
        except (ProcessLookupError, PermissionError):  # nobody is left (macOS says so with the second)
            return


class Supervisor:
    """Starts programs in order, starts again what ends, and stops all in the reverse order of importance.

    `say` receives short lines for the person at the terminal.
    """

    def __init__(self, logs: Path, say: Callable[[str], None]) -> None:
        self._logs, self._say = logs, say
        self._children: list[Child] = []
        # Plain flags: an Event set in a signal handler can deadlock with a wait in the same thread.
        self.stopping = self._hurry = False

    def on_signal(self, *_: object) -> None:
        """A signal handler: the first call asks for a graceful stop, the second for an immediate one."""
        self._hurry, self.stopping = self.stopping, True

    def start(self, program: Program) -> Child:
        """Start a program and look after it from now on."""
        child = Child(program, self._logs / f"{program.name}.log")
        child.start()
        self._children.append(child)
        return child

    def wait_until(self, ready: Callable[[], bool], seconds: float) -> bool:
        """Look after the programs until `ready`, a stop, or the time is over; says whether it became ready."""
        deadline = time.monotonic() + seconds
        while not self.stopping and time.monotonic() < deadline:
            if ready():
                return True
            self._tend()
            time.sleep(TICK)
        return False

    def watch(self) -> None:
        """Look after the programs until a stop is asked for."""
        while not self.stopping:
            self._tend()
            time.sleep(TICK)

    def stop(self) -> None:
        """Stop the programs, the last started first, each within its own grace."""
        self.stopping = True
        for child in reversed(self._children):
            child.stop(lambda: self._hurry)

    def _tend(self) -> None:
        for child in self._children:
            child.turn_log_over()
            if how := child.ended():
                self._say(f"the {child.program.name} {how}")
                self._say(f"  its last line: {child.last_words() or '(nothing)'}")
                self._say(f"  all of it: {child.log}")
            elif child.start_again():
                self._say(f"the {child.program.name} is started again")


def _end_with_parent() -> None:
    """Runs in the new process: have the kernel end it should the supervisor be killed outright (prctl(2))."""
    if _LIBC:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def dashboard_command(port: int, address: str = "127.0.0.1") -> list[str]:
    """Program and arguments; the backend's address and token reach it through the environment."""
    return [sys.executable, "-m", "dashboard.server", "--host", address, "--port", str(port)]
