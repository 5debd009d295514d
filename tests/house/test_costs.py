"""What the suite says of itself: costs by kind and room, what the first ring does not reach, what of the product was executed."""

import importlib.util
from collections import Counter
from pathlib import Path

import pytest
from costs import Cost, by_kind, excesses, slower, started
from house.measures import ROOT
from reach import expected, untouched


def program(name: str) -> object:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"scripts/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cost(test: str, cpu: float = 1.0, shared: dict[str, dict[str, int]] | None = None, **started: int) -> Cost:
    return Cost(f"tests/{test}", wall=2 * cpu, cpu=cpu, started=started, shared=shared or {})


def test_a_test_is_of_the_dearest_kind_of_which_it_starts_something() -> None:
    kinds = {
        "browser": cost("browser/test_a.py::a", tabs=1, backends=1),
        "ranks": cost("worker/test_a.py::a", ranks=2, steps=3),
        "real processes": cost("faults/test_a.py::a", processes=1, backends=1),
        "training": cost("worker/test_a.py::b", shared={"trained": {"steps": 5}}),
        "page": cost("dashboard/test_a.py::a", backends=1, pages=2),
        "backend": cost("backend/test_a.py::a", backends=1),
        "pure": cost("contract/test_a.py::a"),
    }
    assert {kind: one.kind for kind, one in kinds.items()} == {kind: kind for kind in kinds}
    assert by_kind([kinds["page"], kinds["pure"], kinds["pure"]])[1:] == [
        f"{'pure':24}{2:7}{2:13}{4:9}",
        f"{'page':24}{1:7}{1:13}{2:9}",
        f"{'all':24}{3:7}{3:13}{6:9}",
    ]


def test_what_a_fixture_started_for_several_tests_counts_once() -> None:
    one = {"tests/backend/test_a.py::shared[0]": {"backends": 1}}
    costs = [
        cost("backend/test_a.py::a", shared=one),
        cost("backend/test_a.py::b", shared=one),
        cost("backend/deep/test_b.py::c", backends=2),
    ]
    assert started(costs) == {"tests/backend": Counter(backends=3)}
    assert excesses(started(costs), {"tests/backend": {"backends": 3}}) == []
    assert len(excesses(started(costs), {"tests/backend": {"backends": 2}})) == 1


def test_a_room_that_took_twice_its_seconds_is_a_warning() -> None:
    costs = [cost("backend/test_a.py::a", cpu=21.0)]
    assert slower(costs, {"tests/backend": {"seconds": 11}}) == []
    assert slower(costs, {"tests/backend": {"seconds": 10}}) == [
        "warning: tests/backend took 21 s of a processor, over twice the recorded 10"
    ]


def test_what_the_first_ring_does_not_reach_is_named() -> None:
    everything = {kind: set(names) for kind, names in expected().items()}
    assert untouched(everything) == []
    for kind, missing in (
        ("routes", "GET /api/v1/sweeps"),
        ("modules", "worker.trainer"),
        ("settings", "lease_seconds"),
    ):
        (sentence,) = untouched(everything | {kind: everything[kind] - {missing}})
        assert f"touches no {missing} of the {kind}" in sentence


@pytest.mark.parametrize(("argument", "runs"), [("0", {2, 3, 9, 10, 11}), ("1", {2, 3, 4, 10, 11})])
def test_each_statement_notes_that_it_was_executed(tmp_path: Path, argument: str, runs: set[int]) -> None:
    text = '''"""Said first."""
def f(x):
    if x:
        y = """two
lines"""
    elif x is None:
        y = 1
    else:
        y = 2
    return y
f(GIVEN)
'''
    marked, lines = program("executed").marked(text, 0)  # type: ignore[attr-defined]
    executed = [0] * len(lines)
    code = marked.replace("from executed_statements import EXECUTED as __executed__", "")
    exec(code, {"__executed__": executed, "GIVEN": int(argument)})  # noqa: S102 — written above
    ran = {line for line, hit in zip(lines, executed, strict=True) if hit}
    assert ran == runs
