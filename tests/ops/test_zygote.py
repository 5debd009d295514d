"""A forked process is what `python -m` would have started: its own environment, limits, log and end."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import zygote

pytestmark = pytest.mark.slow


def start(log: Path, statement: str, *, files: int | None = None, **environment: str) -> subprocess.Popen[bytes]:
    """A process that has what the backend imports, and runs a statement."""
    command = ["timeit", "-n1", "-r1", statement]
    return zygote.start("backend.app", command, os.environ | zygote.OF_SITES | environment, log, files)


def test_a_fork_has_its_own_environment_limit_and_log_and_says_how_it_ended(tmp_path: Path) -> None:
    statement = (
        "import os, resource, sys, tempfile; print(os.environ['TEST_NAME'], 'GROUPSCOPE_HOME' in os.environ, "
        "resource.getrlimit(resource.RLIMIT_NOFILE)[0], 'backend.app' in sys.modules, tempfile.gettempdir(), flush=True); os._exit(3)"
    )
    for name in ("one", "other"):
        (tmp_path / f"of {name}").mkdir()
        process = start(tmp_path / name, statement, files=90, TEST_NAME=name, TMPDIR=str(tmp_path / f"of {name}"))
        assert isinstance(process, zygote.Forked)
        assert (process.wait(timeout=60), process.poll()) == (3, 3)
        assert (tmp_path / name).read_text() == f"{name} False 90 True {tmp_path / f'of {name}'}\n"


def test_a_fork_can_be_stopped_and_killed_and_its_siblings_stay(tmp_path: Path) -> None:
    first, second = (start(tmp_path / name, "import time; time.sleep(600)") for name in ("first", "second"))
    first.send_signal(signal.SIGSTOP)
    with pytest.raises(subprocess.TimeoutExpired):
        first.wait(timeout=0.05)
    first.kill()
    assert first.wait(timeout=60) == -signal.SIGKILL
    assert second.poll() is None
    second.terminate()
    assert second.wait(timeout=60) == -signal.SIGTERM


def test_what_libraries_read_when_they_are_imported_is_given_to_a_process_of_its_own(tmp_path: Path) -> None:
    statement = "import os, sys; print(os.environ['HF_HOME'], 'backend.app' in sys.modules)"
    process = start(tmp_path / "log", statement, HF_HOME="elsewhere")
    assert not isinstance(process, zygote.Forked)
    assert process.wait(timeout=60) == 0
    assert (tmp_path / "log").read_text().startswith("elsewhere False")


SPAWNS = """
import json, multiprocessing, os, signal, sys, time
from multiprocessing import resource_tracker
sys.path[:0] = {paths!r}
import zygote

def look(queue):
    queue.put([os.getppid(), os.environ["TEST_NAME"], "wave" in sys.modules, sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))])
    sys.exit(7)

def stay(queue):
    queue.put(0)
    signal.pause()

if __name__ == "__main__":
    zygote.spawn_from_a_nursery("wave")
    resource_tracker.ensure_running()  # which unblocks signals
    spawn, seen, codes = multiprocessing.get_context("spawn"), [], []
    for name in ("one", "other"):
        os.environ["TEST_NAME"] = name
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        process = spawn.Process(target=look, args=[queue := spawn.SimpleQueue()])
        process.start()
        seen.append(queue.get())
        process.join()
        codes.append(process.exitcode)
    (killed := spawn.Process(target=stay, args=[queue])).start()
    queue.get()
    killed.kill()
    killed.join()
    print(json.dumps([os.getpid(), seen, [*codes, killed.exitcode]]))
"""


def test_what_is_spawned_from_a_nursery_is_a_child_of_the_one_that_asked(tmp_path: Path) -> None:
    root = Path(zygote.__file__).parents[1]
    program = tmp_path / "program.py"
    program.write_text(SPAWNS.format(paths=[str(root), str(root / "tests")]))
    ran = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True, timeout=60)
    parent, seen, codes = json.loads(ran.stdout)
    assert seen == [[parent, name, True, [signal.SIGTERM]] for name in ("one", "other")]
    assert codes == [7, 7, -signal.SIGKILL]
    assert ran.stderr == ""
