"""Benchmarks explain themselves: each has an entry in the docs, and a `--help` that needs neither a model nor a peer."""

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

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
    assert {"bench", "bench-gpu", "bench-inspector", "bench-uploads", "bench-imports"} <= set(explained)
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
    assert all(one["backend"] > 0 and one[reader] > 0 and one.get("rows", 2001) > 2000 for one in taken)
