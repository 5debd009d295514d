"""What made tests fail one day in fifty, as far as it can be recognised in their code: docs/testing.md has the causes and what ends each."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from house.measures import ROOT

CLOCKS = {"time", "monotonic", "perf_counter", "now", "utcnow"}
# What has a pace or hangs on purpose, by its file: nobody waits with it for something that another one does.
SLOW_ON_PURPOSE: dict[str, set[str]] = {
    # the waits themselves
    "tests/processes.py": {"wait_until"},
    "tests/zygote.py": {"wait"},
    "tests/containers/composition.py": {"wait_until"},
    "tests/faults/worker_held.py": {"_hold_at"},  # in another process
    # programs under test that are slow, hang or never end
    "tests/browser/trl_program.py": {"right"},
    "tests/slurm/slow_rewards.py": {"slow"},
    "tests/faults/misbehaving_rewards.py": {"_sleep", "_fork"},
    "tests/worker/ranks/test_launch.py": {"leave", "send", "send_slowly_once_another_node_failed"},
    # traffic at a given pace
    "tests/backend/test_server.py": {"drip", "test_a_body_may_take_long_as_long_as_it_arrives"},
    "tests/faults/soak.py": {"kill_once"},
    "tests/faults/spectators.py": {"_beat", "come"},
    "tests/faults/test_clock_skew.py": {
        "test_clocks_that_are_off_and_one_that_is_set_back_and_forth_move_no_lease_and_no_duration"
    },
    "tests/faults/test_connections.py": {"stand_it"},
    "tests/faults/test_load.py": {"train", "probe"},
    "tests/faults/test_stalls.py": {"ask_for_work"},
}
SLEEPS = "sleeps: wait for what it waits for, by processes.wait_until or an event"
CLOCK = "asserts that something took less than a time: a machine that is busy takes longer; wait for it, or measure it in benchmarks/"
PORT = "names a port on which another process may listen: processes.free_port holds one that is free"


def named(call: ast.AST) -> tuple[str, str]:
    """The object and the name of what is called: ("time", "sleep")."""
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        return (call.func.value.id if isinstance(call.func.value, ast.Name) else "", call.func.attr)
    return "", ""


def reads_clock(tree: ast.AST, since: set[str]) -> bool:
    return any(
        (named(node)[0] in ("time", "datetime") and named(node)[1] in CLOCKS)
        or (isinstance(node, ast.Name) and node.id in since)
        for node in ast.walk(tree)
    )


def compared_clocks(function: ast.AST) -> Iterator[int]:
    """Where an assertion says that little time has passed."""
    since = {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and reads_clock(node.value, set())
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in (
        node
        for assertion in ast.walk(function)
        if isinstance(assertion, ast.Assert)
        for node in ast.walk(assertion.test)
    ):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            less = node.left if isinstance(node.ops[0], ast.Lt | ast.LtE) else node.comparators[0]
            if not isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.In | ast.NotIn) and reads_clock(less, since):
                yield node.lineno


def number(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value > 0


def gives_way(sleep: ast.AST) -> bool:
    """To whatever else the event loop has to do."""
    return isinstance(sleep, ast.Call) and ast.unparse(sleep.args[0]) == "0"


def luck(name: str, text: str) -> list[str]:
    """A sentence for each place that depends on how fast or how free the machine is."""
    tree, places = ast.parse(text), list[tuple[int, str]]()
    allowed = SLOW_ON_PURPOSE.get(name, set())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    excused = {id(node) for function in functions if function.name in allowed for node in ast.walk(function)}
    for node in ast.walk(tree):
        if named(node) in (("time", "sleep"), ("asyncio", "sleep")) and id(node) not in excused and not gives_way(node):
            places.append((node.lineno, SLEEPS))
        if (
            named(node)[1] == "bind"
            and isinstance(node, ast.Call)
            and node.args
            and isinstance(node.args[0], ast.Tuple)
        ):
            places += [(node.lineno, PORT)] if number(node.args[0].elts[-1]) else []
    places += [
        (line, CLOCK) for function in functions if function.name not in allowed for line in compared_clocks(function)
    ]
    return [f"{name}:{line} {what}" for line, what in sorted(set(places))]


def test_no_test_depends_on_luck_that_can_be_seen() -> None:
    files = sorted((ROOT / "tests").rglob("*.py"))
    found = [sentence for file in files for sentence in luck(str(file.relative_to(ROOT)), file.read_text())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("time.sleep(0.1)", SLEEPS),
        ("async def f():\n    await asyncio.sleep(1)", SLEEPS),
        ("def f():\n    began = time.monotonic()\n    assert time.monotonic() - began < 5", CLOCK),
        ("def f():\n    took = time.time() - began\n    assert 5 >= took", CLOCK),
        ("server.bind(('127.0.0.1', 8000))", PORT),
    ],
)
def test_what_depends_on_luck_is_refused_with_what_to_do(text: str, sentence: str) -> None:
    (found,) = luck("tests/test_a.py", text)
    assert found.endswith(sentence)


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    assert time.monotonic() - began > 0.4",
        "server.bind(('127.0.0.1', 0))",
        "async def f():\n    await asyncio.sleep(0)",
        "STAY = 'import time; time.sleep(60)'",
        "def f():\n    began = time.monotonic()\n    assert seconds < 3",
    ],
)
def test_what_does_not_depend_on_luck_is_left_alone(text: str) -> None:
    assert luck("tests/test_a.py", text) == []


@pytest.mark.slow
def test_tests_that_run_again_and_again_say_which_order_failed(tmp_path: Path) -> None:
    """Of three modules that run in a random order one fails unless it is the first: luck finds it."""
    (tmp_path / "conftest.py").write_text("pytest_plugins = ['shuffle']\n")
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\npythonpath = {ROOT / 'tests'}\naddopts = -q -p no:cacheprovider\nmarkers = alone\n"
    )
    for name in ("one", "two", "three"):
        (tmp_path / f"test_{name}.py").write_text(
            f"import os\ndef test_a(): os.environ.setdefault('FIRST', '{name}')\n"
        )
    (tmp_path / "test_three.py").write_text(
        "import os\ndef test_c(): assert os.environ.setdefault('FIRST', 'three') == 'three'\n"
    )
    command = [sys.executable, str(ROOT / "scripts/luck.py"), "--times", "4", "--busy", "1", "."]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 1
    assert "4 of 4: " in ran.stdout
    assert ran.stdout.splitlines()[-1].endswith("was the first")
