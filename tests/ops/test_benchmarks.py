"""Benchmarks explain themselves, and their floor counts what a step needs and nothing else.

Each has an entry in the docs, and a `--help` that needs neither a model nor a peer.
"""

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from results.page import replace_tables
from sides.floor import PYTORCH, ROWS, Rates, Shape, Tokens, floor_of

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "benchmarks").glob("*.py"))
ONE_THREAD = os.environ | {"OMP_NUM_THREADS": "1"}  # two trials at a time: threads would wait for one another


def trial(script: str, *options: str) -> str:
    """What a benchmark prints; it must end well."""
    command = [sys.executable, str(ROOT / "benchmarks" / script), *options]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=ONE_THREAD)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_every_benchmark_has_its_docs_entry_and_every_command_of_the_makefile_is_explained() -> None:
    headings = re.findall(r"^## `([\w.]+)`", (ROOT / "docs" / "benchmarks.md").read_text(), flags=re.MULTILINE)
    assert sorted(headings) == [script.name for script in SCRIPTS]
    makefile = (ROOT / "Makefile").read_text()
    explained = re.findall(r"^([a-z-]+):.*## ", makefile, flags=re.MULTILINE)
    assert {"bench", "bench-step", "bench-gpu", "bench-inspector", "bench-uploads", "bench-imports"} <= set(explained)
    shown = re.search(r"sed -n 's/\^\\\((\[.*?\])\*", makefile)
    assert shown is not None
    assert all(re.fullmatch(f"{shown[1]}*", name) for name in explained)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_every_benchmark_says_how_to_run_it(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(script.parent)
    monkeypatch.setattr(sys, "argv", [script.name, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert ended.value.code == 0
    assert f"python benchmarks/{script.name}" in capsys.readouterr().out


@pytest.mark.trials
@pytest.mark.parametrize(
    ("command", "promised"),
    [
        (["side_by_side.py", "--trial", "--only", "telemetry", "--steps", "2"], ["The cost of telemetry"]),
        (  # the other one against TRL, and against the floor
            ["gpu.py", "--toy"],
            ["### Side by side", "### Where the time goes", "drew the same tokens"],
        ),
        (
            ["curriculum.py", "--seeds", "0", "--steps", "2", "--each", "8"],
            ["| curriculum |", "| resample |", "not within"],
        ),
        (
            ["limits.py", "--trial"],
            ["| the newest 50 runs |", "| a claim that finds nothing |", "Workers that train", "| a backup |"],
        ),
        (
            ["own_task.py", "--models", "tiny-arithmetic", "--seeds", "0", "--steps", "2"],
            ["s  the run is started", "| tiny-arithmetic |"],
        ),
        (["steps.py", "--trial"], ["quickstart, update: ", "| of the floor |"]),
        (["chance.py", "--windows", "3", "--spreads", "50"], ["| 60 groups | 0.08 |", "| 3 and 12 |", "of 8 windows"]),
    ],
    ids=lambda value: value[0].partition(" ")[0],
)
def test_a_trial_measures_both_sides_and_writes_tables(tmp_path: Path, command: list[str], promised: list[str]) -> None:
    kept = tmp_path / "measured.json"
    printed = trial(*command, "--out", str(kept))
    assert [words for words in promised if words not in printed] == []
    assert kept.stat().st_size > 0


@pytest.mark.trials
def test_a_trial_of_the_check_on_a_gpu_has_a_verdict_for_each_line() -> None:
    assert re.search(r"^(\d+) of \1 lines hold", trial("gpu_check.py", "--toy"), flags=re.MULTILINE)


@pytest.mark.trials
def test_a_trial_of_the_inspector_measures_every_part_at_a_small_scale(tmp_path: Path) -> None:
    home, kept = tmp_path / "home", tmp_path / "measured.json"
    parts = ["api", "views", "live", "memory"]
    options = ["--trial", "--home", str(home), "--out", str(kept), "--minutes", "0.1", "--only", *parts]
    printed = trial("inspector.py", *options)
    assert all(json.loads(kept.read_text())[part] for part in parts)
    for heading in ("Opening a view", "A run under way", "Memory while somebody watches", "Requests"):
        assert f"### {heading}" in printed


@pytest.mark.trials
@pytest.mark.parametrize(
    ("script", "heading", "part", "reader", "completions"),
    [
        ("uploads.py", "### Large files", "taken", "child", {"rows.jsonl": None, "rows.csv": None}),
        ("imports.py", "### Imported runs", "imported", "importer", {"verl": 1024, "own": 1024}),
    ],
)
def test_a_trial_takes_everything_and_looks_at_both_processes(
    tmp_path: Path, script: str, heading: str, part: str, reader: str, completions: dict[str, int | None]
) -> None:
    kept = tmp_path / "measured.json"
    assert heading in trial(script, "--trial", "--out", str(kept))
    taken = json.loads(kept.read_text())[part]
    assert {one["name"]: one.get("completions") for one in taken} == completions
    assert all(one["backend"] > 0 and one[reader] > 0 for one in taken)
    assert all("completions" in one or one["rows"] > 2000 for one in taken)


# ---- the floor

# 2 layers of 4 × (8 × 8) + 3 × (16 × 8) weights, an output layer of 32 × 8.
SHAPE = Shape(
    layers=2, hidden=8, heads=2, kv_heads=2, head_dim=4, intermediate=16, vocabulary=32, parameters=2 * 640 + 256
)
TOKENS = Tokens(prompts_P=[3, 5], completions_R=[1, 4, 2, 3])
LAYERS, HEAD = 2 * 2 * 640, 2 * 256  # operations of a token


def rates(*, operations_per_second: float = 1e9, bandwidth: float = 1e12) -> Rates:
    """The same rate at any number of rows."""
    matrices = [*SHAPE.layer_matrices, SHAPE.head_matrix]
    seconds = {
        one.name: {rows: 2 * one.outputs * one.inputs * rows / operations_per_second for rows in ROWS}
        for one in matrices
    }
    return Rates(seconds={PYTORCH: seconds}, bandwidth=bandwidth)


def test_each_phase_counts_the_tokens_that_it_needs_and_attention_looks_at_what_came_before() -> None:
    phases = floor_of(SHAPE, TOKENS, rates(), reference=True)
    assert phases["prefill"].matrix_operations == 8 * LAYERS + 2 * HEAD  # prompts once, logits of their last tokens
    assert phases["decode"].matrix_operations == 6 * (LAYERS + HEAD)
    assert phases["reference"].matrix_operations == (8 + 6) * LAYERS + 10 * HEAD  # every sampled token is scored
    assert phases["update"].operations == 3 * phases["reference"].operations
    assert "reference" not in floor_of(SHAPE, TOKENS, rates(), reference=False)
    seen_by_prompts, seen_by_completions = 6 + 15, (3 * 3 + 1 + 2 + 3) + (5 + 1) + (2 * 5 + 1 + 2)
    per_key = 4 * SHAPE.layers * SHAPE.heads * SHAPE.head_dim
    assert phases["prefill"].operations - phases["prefill"].matrix_operations == per_key * seen_by_prompts
    assert phases["decode"].operations - phases["decode"].matrix_operations == per_key * seen_by_completions


def test_a_phase_takes_its_operations_or_its_bytes_whichever_is_longer() -> None:
    computing = floor_of(SHAPE, TOKENS, rates(bandwidth=1e15), reference=False)["decode"]
    moving = floor_of(SHAPE, TOKENS, rates(bandwidth=1e3), reference=False)["decode"]
    assert computing.seconds == pytest.approx(computing.operations / 1e9)
    assert moving.seconds == pytest.approx(moving.bytes_moved / 1e3)
    assert moving.bytes_moved > 3 * SHAPE.parameters * 4  # every weight at each of three positions, and the cache


def test_rates_between_points_lie_on_a_line_above_the_last_stay_its_own_and_the_fastest_is_chosen_at_each() -> None:
    matrix = SHAPE.head_matrix
    measured = Rates(seconds={PYTORCH: {matrix.name: {1: 1.0, 2: 1.5, 4: 2.5}}}, bandwidth=1.0)
    assert [measured.of(PYTORCH, matrix, rows) for rows in (1, 2, 3, 4, 8)] == [1.0, 1.5, 2.0, 2.5, 5.0]
    two = {PYTORCH: {matrix.name: {1: 1.0, 2: 4.0}}, "other": {matrix.name: {1: 2.0, 2: 3.0}}}
    assert list(Rates(seconds=two, bandwidth=1.0).fastest().seconds.values()) == [{matrix.name: {1: 1.0, 2: 3.0}}]


def test_tables_replace_what_stands_between_the_marks_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    begin, end = "<!-- measured: begin -->", "<!-- measured: end -->"
    page.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    replace_tables(page, "new", "measured")
    replace_tables(page, "newer", "measured")
    assert page.read_text() == f"before\n{begin}\nnewer\n{end}\nafter\n"
    page.write_text("no marks")
    with pytest.raises(ValueError, match="no marks"):
        replace_tables(page, "new", "measured")
