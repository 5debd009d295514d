"""`groupscope.watch` in two processes of one training: they report once, and neither waits for the other in vain."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import free_port
from serving import TOKEN, Backend
from two_ranks import ROWS, SIZE, STEPS

from backend.contract.groups import CompletionRecord

pytestmark = [pytest.mark.slow, pytest.mark.thorough]


def rows_of(backend: Backend, run_id: int, step: int) -> list[CompletionRecord]:
    found = [backend.client.group(one.id) for one in backend.client.groups(run_id, step=step, sort="index").items]
    assert [len(group.completions) for group in found] == [SIZE] * (2 * ROWS // SIZE)
    return [one for group in found for one in group.completions]


def test_two_processes_report_once_and_a_mistake_in_one_lets_neither_wait(backend: Backend, tmp_path: Path) -> None:
    command = [sys.executable, str(Path(__file__).with_name("two_ranks.py")), str(tmp_path), backend.url]
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent), *sys.path]))
    known = {
        "GROUPSCOPE_HOME": str(backend.home),
        "GROUPSCOPE_TOKEN": TOKEN,
        "PYTHONPATH": path,
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
    }
    ended = subprocess.run(command, env=os.environ | known, capture_output=True, text=True, timeout=280)
    assert ended.returncode == 0, ended.stderr[-4000:]

    runs = {run.name: run for run in backend.client.runs(kind="recorded").items}
    assert {name: (run.status, run.progress.step) for name, run in runs.items()} == dict.fromkeys(
        ("whole", "one broken", "one alone"), ("finished", STEPS)
    )
    batches = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]
    for step in range(STEPS):
        rows = rows_of(backend, runs["whole"].id, step)
        for place, one in enumerate(rows):
            batch, row = batches[place // ROWS][step], place % ROWS
            length = sum(batch["completion_mask"][row])
            trace = backend.client.tokens(one.id)
            assert trace.token_ids == batch["completion_ids"][row][:length]
            assert trace.reference_logprob == pytest.approx(batch["ref_per_token_logps"][row][:length], abs=1e-6)
            assert one.advantage == pytest.approx(batch["advantages"][row], abs=1e-6)
            assert trace.logprob is not None  # of the training pass, in either process
            assert None not in trace.logprob
        for name in ("one broken", "one alone"):
            rows = rows_of(backend, runs[name].id, step)
            assert [one.has_trace for one in rows] == [True] * ROWS + [False] * ROWS
            assert all(one.advantage is not None for one in rows)
    assert "call watch in every process" in ended.stderr
