"""What `test_watch_ranks.py` starts: the same trainings in two processes, forked from one that imported. Each writes what TRL had in it."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from test_watch_trl import Witness, trainer
from torch.multiprocessing import start_processes

import groupscope
import groupscope.trl

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


if __name__ == "__main__":
    from trl import GRPOTrainer  # noqa: F401 — imported once for both

    start_processes(main, (Path(sys.argv[1]), sys.argv[2]), nprocs=2, start_method="fork")
