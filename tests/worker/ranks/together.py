"""Several processes that train together in a test, and what each of them has to say."""

import math
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch.distributed.tensor import DTensor

from worker.policy import loading
from worker.policy.policy import Policy
from worker.ranks.ranks import Ranks

TIMED = ("seconds", "time/", "step_time", "tokens_per_second", "peak_memory")
PATIENCE = timedelta(minutes=5)


def together(count: int, shards: int, folder: Path, work: Callable[..., Any], *given: object) -> list[Any]:
    """What `work(ranks, *given)` returns in each of `count` processes."""
    folder.mkdir(parents=True, exist_ok=True)
    processes.start_processes(_one, (count, shards, folder, work, given), nprocs=count, start_method="spawn")
    return [torch.load(folder / f"rank-{rank}", weights_only=False) for rank in range(count)]


def _one(rank: int, count: int, shards: int, folder: Path, work: Callable[..., Any], given: tuple[object, ...]) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), count)
    ranks = Ranks.join(rank, count, shards, torch.device("cpu"), PATIENCE, store)
    try:
        torch.save(work(ranks, *given), folder / f"rank-{rank}")
    except BaseException:  # noqa: BLE001 — the boundary of a process
        traceback.print_exc()
        os._exit(1)  # the others wait for it
    dist.destroy_process_group()


def whole(values: torch.Tensor) -> torch.Tensor:
    """A copy of all of it."""
    full = values.full_tensor() if isinstance(values, DTensor) else values
    return full.detach().clone()


@contextmanager
def in_float64() -> Iterator[None]:
    """Policies that are loaded meanwhile compute in float64."""

    class Exact(Policy):
        def __init__(self, model: torch.nn.Module, *given: Any, **named: Any) -> None:
            super().__init__(model.double(), *given, **named)  # type: ignore[arg-type]

        def add_value_head(self) -> None:
            super().add_value_head()
            assert self.value_head is not None
            self.value_head.double()

    with patch.object(loading, "Policy", Exact):
        yield


def apart(one: Any, other: Any, path: str = "", by: float = 1e-10) -> list[str]:
    """Where two reports differ by more than rounding."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        pairs = {f"{path}.{key}": (one[key], other[key]) for key in one if not key.startswith(TIMED)}
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = {f"{path}[{place}]": pair for place, pair in enumerate(zip(one, other, strict=True))}
    elif one == other or (
        isinstance(one, float) and isinstance(other, float) and math.isclose(one, other, rel_tol=0, abs_tol=by)
    ):
        return []
    else:
        return [f"{path}: {one!r:.80} and {other!r:.80}"]
    return [where for at, pair in pairs.items() for where in apart(*pair, at, by)]
