"""With a cluster one process waits for work at any time, and each of the others has a run."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import wait_until

from worker.cluster import drivers
from worker.cluster.drivers import ParentLine, lead
from worker.process import Process

DRIVER = """
import os, pathlib, signal, sys, time
sys.path.insert(0, {root!r})
from worker.cluster.drivers import KNOWN, LINE, ParentLine
folder = pathlib.Path({folder!r})
line = ParentLine(int(sys.argv[sys.argv.index(LINE) + 1]))
if (folder / "refuse").exists():
    (folder / "refused").touch()
    sys.exit(7)
line.connected(("a CPU", 7))
known = sys.argv[sys.argv.index(KNOWN) + 1] if KNOWN in sys.argv else ""
number = len(list(folder.glob("began-*")))
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
(folder / f"began-{{number}}").write_text(known)
while not asked:
    if (folder / f"placed-{{number}}").exists():
        line.placed()
        line.placed()  # a second time says nothing more
    if (folder / f"end-{{number}}").exists():
        sys.exit(int((folder / f"end-{{number}}").read_text() or 0))
    time.sleep(0.01)
(folder / f"asked-{{number}}").touch()
"""


class Leader(Process):
    """The parent as signals would see it."""

    def __init__(self) -> None:
        super().__init__([])
        self.asked = 0

    def _times_asked(self) -> int:
        return self.asked


class Led:
    def __init__(self, folder: Path) -> None:
        self.folder, self.leader, self.code = folder, Leader(), list[int]()
        script = folder / "driver.py"
        script.write_text(DRIVER.format(root=str(Path(__file__).parents[3]), folder=str(folder)))
        command = [sys.executable, str(script)]
        self.thread = threading.Thread(target=lambda: self.code.append(lead(command, self.leader)), daemon=True)

    def say(self, what: str, text: str = "") -> None:
        partial = self.folder / "partial"
        partial.write_text(text)
        partial.rename(self.folder / what)

    def wait_for(self, *names: str) -> None:
        wait_until(lambda: all((self.folder / name).exists() for name in names), " and ".join(names), 60)


@pytest.fixture
def led(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Led]:
    monkeypatch.setattr(drivers, "_TICK", 0.01)
    monkeypatch.setattr(drivers, "_PAUSE", 0.2)
    one = Led(tmp_path)
    yield one
    one.leader.asked = 2
    one.thread.join(60)


def test_another_waits_once_a_run_has_its_places_and_all_are_asked_to_end(led: Led) -> None:
    led.thread.start()
    led.wait_for("began-0")
    led.say("placed-0")
    led.wait_for("began-1")
    assert (led.folder / "began-0").read_text() == ""
    wait_until(lambda: (led.folder / "began-1").read_text() == '["a CPU", 7]', "it knows what the first one found", 60)
    led.say("end-0")  # its run is over: nobody has to take its place, since one waits
    led.say("placed-1")
    led.wait_for("began-2")
    assert not (led.folder / "began-3").exists()
    led.leader.asked = 1
    led.thread.join(60)
    assert led.code == [0]
    assert (led.folder / "asked-1").exists()
    assert (led.folder / "asked-2").exists()
    assert not (led.folder / "asked-0").exists()


def test_the_first_that_cannot_start_ends_it_and_a_later_one_is_tried_again(led: Led) -> None:
    led.thread.start()
    led.wait_for("began-0")
    led.say("refuse")
    led.say("end-0", "1")
    led.wait_for("refused")
    (led.folder / "refuse").unlink()
    led.wait_for("began-1")
    assert led.thread.is_alive()


def test_it_ends_as_its_first_driver_does_if_that_cannot_start(led: Led) -> None:
    led.say("refuse")
    led.thread.start()
    led.thread.join(60)
    assert led.code == [7]


def test_a_driver_is_to_end_when_its_parent_is_gone() -> None:
    assert not Process([], parent=drivers.os.getppid()).shutting_down()
    assert Process([], parent=1 + drivers.os.getppid()).shutting_down()


def test_a_line_says_that_its_run_is_placed_once(tmp_path: Path) -> None:
    read, write = drivers.os.pipe()
    line = ParentLine(write)
    line.connected(("a CPU", None))
    line.placed()
    with (tmp_path / "file").open("w") as file:  # which may get the number of the line
        line.placed()
        line.connected(("a CPU", None))
        assert file.write("open") == 4
    assert drivers.os.read(read, 100) == b'["a CPU", null]'
    assert drivers.os.read(read, 100) == b""
    drivers.os.close(read)
