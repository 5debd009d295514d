"""Real processes without the seconds that importing torch takes: forked from a parent that has imported, and has run nothing.

A forked process is its own: it has a process id, an environment, limits and files, can be stopped and killed, and runs its
module as `python -m` would. What it shares with its siblings is what the imports left behind. So only variables that our own
programs read once they run may differ from the parent's: with any other (HF_HOME, LD_PRELOAD) the process is started afresh.
"""

import atexit
import gc
import importlib
import json
import os
import resource
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from tests import nursery

# What a first run imports is beside the module that is run.
_IMPORTED = {
    "backend.app": ("backend.app",),
    "dashboard.server": ("dashboard.server",),
    "worker.main": ("worker.main", "pandas", "pyarrow.pandas_compat", "transformers.models.llama.modeling_llama"),
}
_READ_WHEN_RUN = ("GROUPSCOPE_", "AWS_", "TEST_", "KILLED_WHEN", "PYTEST_", "TMPDIR")
# The cache of the Hub that every site has: a folder that is there only in a test that makes it.
HUB = Path(tempfile.gettempdir()) / f"groupscope-hub-of-tests-{os.getpid()}"
OF_SITES = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(HUB / "hub")}  # what every site sets
_BETWEEN_LOOKS = 0.005  # seconds


class Forked(subprocess.Popen[bytes]):
    """A forked process, as `subprocess` shows one that it started."""

    def __init__(self, parent: "_Parent", args: Sequence[str], pid: int) -> None:
        self._parent, self.args, self.pid = parent, list(args), pid
        self.returncode: int | None = None  # type: ignore[assignment]
        self._asking = threading.Lock()  # the parent can be asked for an exit status once
        self.stdin = self.stdout = self.stderr = None

    def poll(self) -> int | None:
        """Its exit status once it has one."""
        with self._asking:
            if self.returncode is None:
                self.returncode = self._parent.ask(poll=self.pid)
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status. Raises subprocess.TimeoutExpired."""
        began = time.monotonic()
        while (status := self.poll()) is None:
            if timeout is not None and time.monotonic() - began > timeout:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(_BETWEEN_LOOKS)
        return status

    def __del__(self) -> None:
        """The parent reaps it."""


class _Parent:
    """The process that has imported, and the wire to it."""

    def __init__(self, module: str) -> None:
        self.environment = os.environ | OF_SITES
        self._lock = threading.Lock()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.zygote"],
                env=self.environment | {"ZYGOTE": json.dumps([theirs.fileno(), *_IMPORTED[module]])},
                cwd=Path(__file__).parents[1],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self._wire = ours.makefile("rw")
        ours.close()
        atexit.register(self._end)

    def ask(self, **request: object) -> int | None:
        with self._lock:
            self._wire.write(json.dumps(request) + "\n")
            self._wire.flush()
            answer: int | None = json.loads(self._wire.readline())
        return answer

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()


_parent = cache(_Parent)


def start(
    like: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    files: int | None = None,
    *,
    errors: Path | None = None,
) -> subprocess.Popen[bytes]:
    """`python -m COMMAND`, which imports what the module `like` does, at most `files` files open.

    What it writes is appended to `log`; what it writes as errors to `errors`, if that is given.
    """
    errors = errors or log
    log.touch()  # a fork that has not come so far may be read about already
    parent = _parent(like)
    changed = dict(set(environment.items()) ^ set(parent.environment.items()))
    if all(name.startswith(_READ_WHEN_RUN) for name in changed):
        request = {"command": command, "environment": dict(environment), "files": files}
        request |= {"log": str(log), "errors": str(errors)}
        pid = parent.ask(**request, cwd=os.getcwd())
        assert pid is not None
        return Forked(parent, command, pid)
    limit = None if files is None else lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    with log.open("ab") as out, errors.open("ab") as err:
        return subprocess.Popen(
            [sys.executable, "-m", *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            preexec_fn=limit,
        )


def _serve(wire: socket.socket) -> list[str]:
    """Fork on request and say how each child ended, until nobody asks any longer. Returns in a child, with what it runs."""
    with wire, wire.makefile("rw") as lines:
        for line in lines:
            request = json.loads(line)
            if "poll" in request:
                pid, status = os.waitpid(request["poll"], os.WNOHANG)
                answer = os.waitstatus_to_exitcode(status) if pid else None
            elif (answer := os.fork()) == 0:
                break
            lines.write(json.dumps(answer) + "\n")
            lines.flush()
        else:
            os._exit(0)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    tempfile.tempdir = None  # what an import may have found out by the parent's TMPDIR
    for name, descriptor in (("log", 1), ("errors", 2)):
        file = os.open(request[name], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        os.dup2(file, descriptor)
        os.close(file)
    if request["files"] is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (request["files"],) * 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    command: list[str] = request["command"]
    return command


@cache
def spawn_from_a_nursery(*modules: str) -> None:
    """What this process spawns from here on is forked from a process that has imported these modules."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.Popen(
            [sys.executable, "-m", "tests.zygote"],
            env=os.environ | {"NURSERY": json.dumps([theirs.fileno(), *modules])},
            cwd=Path(__file__).parents[1],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    nursery.Nursery(ours)


def fork_a_nursery() -> str | None:
    """The same for a worker of which nothing has run, if it may train with several processes.

    Returns in each process that is spawned, with what it runs, and here.
    """
    if all(os.environ.get(name, "1") == "1" for name in ("GROUPSCOPE_PROCESSES", "GROUPSCOPE_NODES")):
        return None
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    if os.fork() == 0:
        ours.close()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return nursery.born(theirs, parent) or os._exit(0)
    theirs.close()
    nursery.Nursery(ours)
    return None


def _import(modules: Sequence[str]) -> None:
    for module in modules:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if asked := os.environ.pop("NURSERY", None):
        descriptor, *modules = json.loads(asked)
        os.set_inheritable(descriptor, False)
        _import(modules)
        code = nursery.born(socket.socket(fileno=descriptor), os.getppid())
    else:
        descriptor, *modules = json.loads(os.environ.pop("ZYGOTE"))
        os.set_inheritable(descriptor, False)
        _import(modules)
        module, *sys.argv[1:] = _serve(socket.socket(fileno=descriptor))
        if (code := fork_a_nursery()) is None:
            sys.modules.pop(module, None)
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    if code:
        nursery.run(code)


if __name__ == "__main__":
    _main()
