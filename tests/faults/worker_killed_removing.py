"""A worker that is killed at one moment of a checkpoint's removal, the second time that it comes to one; KILLED_WHEN says which.

It does the steps that `worker_held` lets it do: the answer upon which it removes may come late.
"""

import os
import shutil
import signal
import sys
from pathlib import Path

from tests.faults import worker_held
from worker import checkpoint, store
from worker.attempt import Attempt
from worker.main import main

MOMENTS = ("forgotten", "renamed", "half removed", "removed")

_remove, _rmtree = checkpoint.remove_checkpoints, shutil.rmtree
_moment = os.environ.get("KILLED_WHEN", "")
_removals = 0


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def remove_checkpoints(folder: Path, kept: list[str], *, upto: tuple[int, int]) -> None:
    global _removals
    names = [found for path in folder.glob("step-*") if (found := checkpoint.NAME.fullmatch(path.name))]
    going = [
        name[0] for name in names if (int(name[2]), int(name[1])) <= upto and f"{folder.name}/{name[0]}" not in kept
    ]
    _removals += bool(going)
    if _removals < 2:
        _remove(folder, kept, upto=upto)
        return
    if _moment == "forgotten":
        _die()
    shutil.rmtree = _cut_short if _moment != "removed" else _rmtree
    _remove(folder, kept, upto=upto)
    _die()


def _cut_short(path: Path, ignore_errors: bool = False) -> None:
    if _moment == "half removed":
        _rmtree(Path(path) / "model")
    _die()


if __name__ == "__main__":
    store.remove_checkpoints, Attempt.steps = remove_checkpoints, worker_held.steps  # type: ignore[method-assign]
    sys.exit(main(sys.argv[1:]))
