"""The house has limits: each room its lines, files and what its tests start; and what only becomes less."""

import ast
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from acting import GRPO, Actor
from house.measures import PRODUCT, ROOT, fields, keys, ratchets, rooms, texts
from serving import Backend

from backend.contract.protocol import Claim

TABLE = tomllib.loads((ROOT / "tests/house/rooms.toml").read_text())
# Only the plugins that a run names: importing all that are installed takes longer than its tests.
ALONE = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
ASKS = "in tests/house/rooms.toml, in the same commit, with a sentence why"


def over(sizes: dict[str, dict[str, int]], limits: dict[str, dict[str, int]]) -> list[str]:
    """A sentence for each room that is larger than the table allows."""
    return [
        f"{room} has {size[kind]:,} {kind}, {size[kind] - limit:,} more than the table allows: take something out, or raise it {ASKS}"
        for room, size in sizes.items()
        for kind in ("lines", "files")
        if size[kind] > (limit := limits.get(room, {}).get(kind, 0))
    ]


def moved(now: dict[str, int], recorded: dict[str, int]) -> list[str]:
    """A sentence for each number that rose, and for each that fell and is not yet recorded."""
    return [
        f"{now[name]} {name}, {recorded[name]} are allowed, and this number only falls: make it as it was"
        if now[name] > recorded[name]
        else f"{now[name]} {name}, of {recorded[name]}: write {now[name]} into tests/house/rooms.toml, so that it stays so"
        for name in recorded
        if now[name] != recorded[name]
    ]


def test_no_room_is_larger_than_the_table_allows() -> None:
    sizes = rooms(texts(*PRODUCT, "benchmarks", "scripts", "tests"))
    assert not over(sizes, TABLE["rooms"])
    gone = TABLE["rooms"].keys() - sizes.keys()
    assert not gone, "the table names rooms that are not there: take them out"


def test_what_may_only_become_less_has_not_become_more(backend: Backend) -> None:
    now = ratchets(texts(*PRODUCT), texts("tests"))
    backend.client.create_run(GRPO)
    claim = Actor(backend.client).claim()
    assert claim is not None
    dicts = claim.model_copy(update={"config": {}}).model_dump(mode="json")
    now["fields of a claim"] = fields(Claim) + sum(keys(value) for value in dicts.values())
    assert not moved(now, TABLE["ratchets"])


def test_a_room_with_a_line_or_a_file_too_many_is_told_what_to_do(tmp_path: Path) -> None:
    room = tmp_path / "backend/queue"
    room.mkdir(parents=True)
    (room / "claim.py").write_text("x = 1\ny = 2\n")
    (room / "lease.py").write_text("z = 3\n")
    sizes = rooms(texts("backend", root=tmp_path))
    assert over(sizes, {"backend/queue": {"lines": 3, "files": 2}}) == []
    assert over(sizes, {"backend/queue": {"lines": 2, "files": 2}}) == [
        f"backend/queue has 3 lines, 1 more than the table allows: take something out, or raise it {ASKS}"
    ]
    assert over(sizes, {}) == [
        f"backend/queue has {number} more than the table allows: take something out, or raise it {ASKS}"
        for number in ("3 lines, 3", "2 files, 2")
    ]


def function(lines: int, name: str = "f") -> str:
    return f"def {name}():\n" + "    0\n" * (lines - 1)


@pytest.mark.parametrize(
    ("name", "held", "broken"),
    [
        ("functions over 50 lines", function(50), function(51)),
        ("files over 300 lines", "0\n" * 300, "0\n" * 301),
        ("classes over 150 lines", "class C:\n" + "    0\n" * 149, "class C:\n" + "    0\n" * 150),
        ("class names that exist twice", "class C: ...\nclass D: ...\n", "class C: ...\nclass C: ...\n"),
        ("functions that are named once", function(2) + "f()\nf()\n", function(2, "_f") + "_f()\n"),
        ("lines over 130 columns", f"'{'x' * 128}'", f"'{'x' * 129}'"),
        ("private attributes of others in tests", "self._mine\nits.__name__\n", "its._own\n"),
    ],
)
def test_what_grows_is_told_so_and_what_became_less_is_to_be_recorded(name: str, held: str, broken: str) -> None:
    ast.parse(broken)
    before, after = (
        ratchets({Path("backend/a.py"): text}, {Path("tests/a.py"): text})[name] for text in (held, broken)
    )
    assert (before, after) == (0, 1)
    assert moved({name: 1}, {name: 0}) == [f"1 {name}, 0 are allowed, and this number only falls: make it as it was"]
    assert moved({name: 0}, {name: 1}) == [f"0 {name}, of 1: write 0 into tests/house/rooms.toml, so that it stays so"]


def test_a_dict_hides_no_field() -> None:
    assert keys({"lease": 1, "begins": {"at": 1, "of": [{"run": 2}]}}) == 5


STARTS = """
import chromium, pytest

browser = pytest.fixture(scope="module")(chromium.browser)

def test_looks(browser): pass
def test_looks_too(browser): pass
def test_starts_a_second_one(browser): browser.browser_type.launch(executable_path=chromium.installed(), args=list(chromium.ARGUMENTS)).close()
"""


@pytest.mark.slow
def test_a_test_that_starts_a_second_browser_fails_with_a_sentence(tmp_path: Path) -> None:
    """A whole run of pytest, with two processes: the browser that the tests share counts once, however many processes start it."""
    table, costs, room = tmp_path / "rooms.toml", tmp_path / "costs", tmp_path / "tests/browser"
    room.mkdir(parents=True)
    (room / "test_starts.py").write_text(STARTS)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {ROOT} {ROOT / 'tests'}\n")
    (tmp_path / "conftest.py").write_text("pytest_plugins = ['costs']\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "xdist.plugin",
        "-n",
        "2",
        f"--rooms={table}",
        f"--costs={costs}",
        "tests",
    ]
    for allowed, ended in ((2, 0), (1, 1)):
        table.write_text(f'[rooms]\n"tests/browser" = {{ browsers = {allowed}, seconds = 1000 }}\n')
        costs.unlink(missing_ok=True)
        ran = subprocess.run(command, cwd=tmp_path, env=ALONE, capture_output=True, text=True, check=False, timeout=120)
        assert ran.returncode == ended, ran.stdout
        sentence = "tests/browser starts 2 browsers, 1 more than the table allows: read what a fixture"
        assert (sentence in ran.stdout) == bool(ended)
    begun = {
        json.loads(line)["test"].rpartition("::")[2]: json.loads(line)["started"]
        for line in costs.read_text().splitlines()
    }
    assert begun == {"test_looks": {}, "test_looks_too": {}, "test_starts_a_second_one": {"browsers": 1}}
