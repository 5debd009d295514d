"""A forked process is what `python -m` would have started: its own environment, limits, log and end."""

import os
import signal
import subprocess
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
