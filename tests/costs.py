"""What each test costs and starts: measured by every run, printed by room, held against tests/house/rooms.toml.

A room is a folder of tests. What its tests start is counted, so the numbers are the same on every machine, and a room that starts more
than the table allows fails the run. Seconds differ from machine to machine: they are printed and kept, and a room at twice its recorded
seconds is a warning. docs/testing.md says how to read them; `make costs` prints them again from the file of the last run.
"""

import json
import os
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from calls import Note, install, on_call

ROOMS = Path(__file__).parent / "house/rooms.toml"
# What is counted, in the order of what it costs.
STARTED = ("browsers", "tabs", "ranks", "torch", "backends", "steps", "pages")
# A test is of the first kind of which it starts something.
KINDS = {
    "browser": ("browsers", "tabs"),
    "ranks": ("ranks",),
    "real processes": ("torch", "processes"),
    "training": ("steps",),
    "page": ("pages",),
    "backend": ("backends",),
}
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Cost:
    """Of one test, its fixtures included: seconds of the clock and of processors, and what it started."""

    test: str
    wall: float
    cpu: float
    started: dict[str, int] = field(default_factory=dict)
    # What fixtures that several tests read have started, by fixture: it counts once, however many processes set it up.
    shared: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def room(self) -> str:
        """The folder: tests/backend, also for what lies deeper."""
        return "/".join(Path(self.test.partition("::")[0]).parent.parts[:2])

    @property
    def kind(self) -> str:
        """What makes it expensive."""
        begun = set(self.started).union(*self.shared.values())
        return next((kind for kind, names in KINDS.items() if begun & set(names)), "pure")


# ---- counting, in the process that runs the tests

_started: dict[str, Counter[str]] = defaultdict(Counter)
_owners: list[str] = []  # the fixture that is being set up, else the test


def count(kind: str, number: int = 1) -> None:
    """The test, or the fixture that is being set up, has started something that costs."""
    if _owners:
        _started[_owners[-1]][kind] += number


def _starts(kind: str) -> Note:
    return lambda *given, **named: count(kind)


def _forks(like: str, *given: object, **named: object) -> None:
    count("processes")
    if (kind := {"backend.app": "backends", "worker.main": "torch"}.get(like)) is not None:
        count(kind)


def _loads(page: object, url: str, **named: object) -> None:
    if not url.endswith("/_stcore/health"):
        count("tabs")


on_call("serving", "Serving.__init__", _starts("backends"))
on_call("zygote", "start", _forks)
on_call("torch.multiprocessing", "start_processes", lambda *given, nprocs, **named: count("ranks", nprocs))
on_call("worker.group_step", "GroupStep.update", _starts("steps"))
on_call("worker.preferences.trainer", "PairLearner.update", _starts("steps"))
on_call("transformers.trainer", "Trainer.training_step", _starts("steps"))
on_call("streamlit.testing.v1.app_test", "AppTest._run", _starts("pages"))
on_call("playwright.sync_api", "BrowserType.launch", _starts("browsers"))
on_call("playwright.sync_api", "BrowserType.launch_persistent_context", _starts("browsers"))
on_call("playwright.sync_api", "Page.goto", _loads)


_ours: dict[str, bool] = {
    str(os.getpid()): True
}  # of each process that there is: whether this one has started it, or one of those


_seen = [0.0, 0.0]  # what was counted last, and what has gone since with processes that ended without a parent


def _processor_seconds() -> float:
    """Of this process and all that it has started, also of those that have ended. It never becomes less."""
    now = _counted_seconds()
    _seen[1] += max(0.0, _seen[0] - now)
    _seen[0] = now
    return sum(_seen)


def _counted_seconds() -> float:
    there, ticks = set(filter(str.isdigit, os.listdir("/proc"))), 0
    for gone in _ours.keys() - there:
        del _ours[gone]
    # in the order of their start, so that a parent comes before its children; those of others are looked at once
    for process in sorted(there, key=int):
        if _ours.get(process, True):
            with suppress(OSError), open(f"/proc/{process}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
                if _ours.setdefault(process, _ours.get(fields[1].decode(), False)):
                    ticks += sum(map(int, fields[11:15]))  # user and system, its own and its ended children's
    return ticks / _TICKS


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """The costs of a test go with the report of its teardown, from whichever process ran it."""
    install()
    _owners[:] = [item.nodeid]
    item.stash[_BEGAN] = time.monotonic(), _processor_seconds()
    return (yield)


_BEGAN = pytest.StashKey[tuple[float, float]]()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """What fixtures of a module or session start belongs to them."""
    if fixturedef.scope == "function":
        return (yield)
    of = request.node.nodeid if fixturedef.scope in ("module", "class") else fixturedef.baseid
    _owners.append(f"{of}::{fixturedef.argname}[{getattr(request, 'param_index', 0)}]")
    _started.pop(_owners[-1], None)  # if it is set up again
    try:
        return (yield)
    finally:
        _owners.pop()


def _uses(item: pytest.Item, fixture: str) -> bool:
    place, _, name = fixture.rpartition("::")
    return item.nodeid.startswith(place) and name.partition("[")[0] in getattr(item, "fixturenames", ())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """At its end a test says what it was. Those in neither ring have no limits: their counts are what they are about."""
    report = yield
    if call.when == "teardown" and item.get_closest_marker("alone") is None:
        wall, cpu = item.stash[_BEGAN]
        own = dict(_started.pop(item.nodeid, {}))
        shared = {owner: dict(begun) for owner, begun in _started.items() if _uses(item, owner)}
        cost = Cost(item.nodeid, time.monotonic() - wall, _processor_seconds() - cpu, own, shared)
        report.user_properties.append(("cost", vars(cost)))
    return report


# ---- what they add up to, in the process that the tests were started by


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--costs", type=Path, help="add what the tests cost to this file, and print it by kind")
    parser.addoption("--rooms", type=Path, default=ROOMS, help="the table of what each room may start")


def pytest_configure(config: pytest.Config) -> None:
    """The process that has started others hears their reports."""
    if not hasattr(config, "workerinput"):
        table: dict[str, dict[str, int]] = tomllib.loads(config.getoption("--rooms").read_text())["rooms"]
        config.pluginmanager.register(_Sum(config.getoption("--costs"), table), "costs of tests")


class _Sum:
    def __init__(self, file: Path | None, limits: Mapping[str, Mapping[str, int]]) -> None:
        self._file, self._limits = file, limits
        self._costs, self._excesses = list[Cost](), list[str]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            self._costs += [Cost(**cost) for name, cost in report.user_properties if name == "cost"]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._file is not None:
            self._file.parent.mkdir(exist_ok=True)
            with self._file.open("a") as lines:
                lines.writelines(json.dumps(vars(cost)) + "\n" for cost in self._costs)
            self._costs = read(self._file)
        self._excesses = excesses(started(self._costs), self._limits)
        if self._excesses and not session.exitstatus:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._file is not None:
            terminalreporter.section("what the tests cost")
            for line in [*by_kind(self._costs), *slower(self._costs, self._limits)]:
                terminalreporter.line(line)
        if self._excesses:
            terminalreporter.section("rooms that start more than they may", red=True, bold=True)
            for line in self._excesses:
                terminalreporter.line(line)


def read(file: Path) -> list[Cost]:
    """The costs in a file, of each test the last ones."""
    costs = [Cost(**json.loads(line)) for line in file.read_text().splitlines()]
    return list({cost.test: cost for cost in costs}.values())


def started(costs: Iterable[Cost]) -> dict[str, Counter[str]]:
    """What the tests of each room have started."""
    sums, fixtures = defaultdict[str, Counter[str]](Counter), dict[tuple[str, str], dict[str, int]]()
    for cost in costs:
        sums[cost.room].update(cost.started)
        fixtures |= {(cost.room, fixture): begun for fixture, begun in cost.shared.items()}
    for (room, _), begun in fixtures.items():
        sums[room].update(begun)
    return sums


def excesses(started: Mapping[str, Mapping[str, int]], limits: Mapping[str, Mapping[str, int]]) -> list[str]:
    """A sentence for each room that has started more than it may."""
    return [
        f"{room} starts {begun[kind]} {kind}, {begun[kind] - limit} more than the table allows: read what a fixture of the "
        "module or session has started, or raise the number in tests/house/rooms.toml, in the same commit, with a sentence why"
        for room, begun in sorted(started.items())
        for kind in STARTED
        if begun.get(kind, 0) > (limit := limits.get(room, {}).get(kind, 0))
    ]


def slower(costs: Sequence[Cost], limits: Mapping[str, Mapping[str, int]]) -> list[str]:
    """A warning for each room that took over twice its recorded processor seconds: a machine that is busy, or a test that waits."""
    rooms = defaultdict[str, float](float)
    for cost in costs:
        rooms[cost.room] += cost.cpu
    recorded = {room: limits.get(room, {}).get("seconds", 0) for room in rooms}
    return [
        f"warning: {room} took {rooms[room]:.0f} s of a processor, over twice the recorded {seconds}"
        for room, seconds in recorded.items()
        if rooms[room] > 2 * seconds
    ]


def by_kind(costs: Sequence[Cost]) -> list[str]:
    """Tests, processor and wall seconds of each kind, the dearest first."""
    return _table(costs, lambda cost: cost.kind)


def by_room(costs: Sequence[Cost]) -> list[str]:
    """The same of each room."""
    return _table(costs, lambda cost: cost.room)


def _table(costs: Sequence[Cost], key: Callable[[Cost], str]) -> list[str]:
    rows = defaultdict[str, list[Cost]](list)
    for cost in costs:
        rows[key(cost)].append(cost)
    ordered = [*sorted(rows.items(), key=lambda row: -sum(cost.cpu for cost in row[1])), ("all", list(costs))]
    head = f"{'':24}{'tests':>7}{'processor s':>13}{'wall s':>9}"
    return [head] + [
        f"{name:24}{len(of):7,}{sum(cost.cpu for cost in of):13,.0f}{sum(cost.wall for cost in of):9,.0f}"
        for name, of in ordered
    ]
