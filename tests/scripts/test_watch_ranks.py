"""`groupscope.watch` in two processes of one training: they report once, and neither waits for the other in vain.

As a program, this file is the same trainings in two processes, forked from one that imported. Each writes what TRL had in it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import free_port
from serving import TOKEN, Backend
from test_watch_trl import Witness, rows_of, trainer
from torch.multiprocessing import start_processes

import groupscope
import groupscope.trl

pytestmark = [pytest.mark.slow, pytest.mark.thorough]

STEPS, ROWS, SIZE = 2, 6, 4  # the second of three groups is half in either process


def train(name: str, folder: Path, url: str, *, watched: bool = True) -> Witness:
    of = trainer(folder, max_steps=STEPS, per_device_train_batch_size=ROWS, num_generations=SIZE)
    witness = Witness(of)
    if watched:
        groupscope.watch(of, name=name, backend=url)
    of.train()
    return witness


def main(rank: int, folder: Path, url: str) -> None:
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    witness = train("whole", folder, url)
    batches = [{name: value.tolist() for name, value in one.items()} for one in witness.batches]
    (folder / f"{rank}.json").write_text(json.dumps(batches))

    of = groupscope.trl.Rows.of

    def broken(*args: Any) -> Any:
        raise ValueError("a mistake of the record in one process")

    groupscope.trl.Rows.of = broken if rank == 1 else of  # type: ignore[method-assign]
    train("one broken", folder, url)
    groupscope.trl.Rows.of = of  # type: ignore[method-assign]
    train("one alone", folder, url, watched=rank == 0)


def test_two_processes_report_once_and_a_mistake_in_one_lets_neither_wait(backend: Backend, tmp_path: Path) -> None:
    command = [sys.executable, __file__, str(tmp_path), backend.url]
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
        of = {name: rows_of(backend.client, run.id, step) for name, run in runs.items()}
        places = [*range(SIZE)] * (2 * ROWS // SIZE)
        assert {name: [one.index for one in rows] for name, rows in of.items()} == dict.fromkeys(runs, places)
        for place, one in enumerate(of["whole"]):
            batch, row = batches[place // ROWS][step], place % ROWS
            length = sum(batch["completion_mask"][row])
            trace = backend.client.tokens(one.id)
            assert trace.token_ids == batch["completion_ids"][row][:length]
            assert trace.reference_logprob == pytest.approx(batch["ref_per_token_logps"][row][:length], abs=1e-6)
            assert one.advantage == pytest.approx(batch["advantages"][row], abs=1e-6)
            assert trace.logprob is not None  # of the training pass, in either process
            assert None not in trace.logprob
        for name in ("one broken", "one alone"):
            assert [one.has_trace for one in of[name]] == [True] * ROWS + [False] * ROWS
            assert all(one.advantage is not None for one in of[name])
    assert "call watch in every process" in ended.stderr


if __name__ == "__main__":
    from trl import GRPOTrainer  # noqa: F401 — imported once for both

    start_processes(main, (Path(sys.argv[1]), sys.argv[2]), nprocs=2, start_method="fork")
