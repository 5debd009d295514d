"""The processes that train one run together, as one of them sees them. Alone is the usual case, and asks nobody anything."""

from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar, cast

import torch
import torch.distributed as dist
from torch.distributed import Store  # type: ignore[attr-defined]
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from worker.ranks.waiting import WAITING

Value = TypeVar("Value")


@dataclass(frozen=True)
class Ranks:
    """This process among `count`; the weights lie in `shards` parts, and each part on count / shards of the processes.

    What all have to do together, all have to call in the same order: `gather`, `of_first`, `any` and `add_up` wait for the others.
    """

    rank: int = 0
    count: int = 1
    shards: int = 1

    @staticmethod
    def join(
        rank: int, count: int, shards: int, device: torch.device, patience: timedelta, store: Store | None = None
    ) -> "Ranks":
        """Meet the others at `store` (without one, where the environment says); from then on a call that waits longer than `patience` raises RuntimeError."""
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=patience)
        return Ranks(rank, count, shards)

    @property
    def alone(self) -> bool:
        """Whether there are no others."""
        return self.count == 1

    @property
    def first(self) -> bool:
        """Whether this is the one that reports, and writes what is written once."""
        return self.rank == 0

    @property
    def in_shards(self) -> bool:
        """Whether no process has all weights."""
        return self.shards > 1

    def share(self, total: int) -> range:
        """Which of `total` things are this process's: equal parts in order, the first ones larger by one where they are not equal."""
        each, more = divmod(total, self.count)
        begin = self.rank * each + min(self.rank, more)
        return range(begin, begin + each + (self.rank < more))

    def gather(self, mine: Value) -> list[Value]:
        """Everybody's value, in the order of the ranks."""
        if self.alone:
            return [mine]
        every: list[Value | None] = [None] * self.count
        with WAITING.others():
            dist.all_gather_object(every, mine)
        return cast(list[Value], every)

    def of_first(self, mine: Value) -> Value:
        """The first one's value."""
        if self.alone:
            return mine
        told = [mine]
        with WAITING.others():
            dist.broadcast_object_list(told)
        return told[0]

    def any(self, mine: bool) -> bool:
        """Whether it is so for one of them."""
        if self.alone:
            return mine
        said = torch.tensor([int(mine)])
        with WAITING.others():
            dist.all_reduce(said, dist.ReduceOp.MAX)
        return bool(said.item())

    def add_up(self, values: torch.Tensor) -> None:
        """Everybody's values, summed in their place."""
        with WAITING.others():
            dist.all_reduce(values)

    def mesh(self, device: torch.device) -> DeviceMesh:
        """The processes by the part of the weights that they hold, for FSDP2."""
        if self.shards == self.count:
            return init_device_mesh(device.type, (self.count,), mesh_dim_names=("shard",))
        shape = (self.count // self.shards, self.shards)
        return init_device_mesh(device.type, shape, mesh_dim_names=("replicate", "shard"))


ALONE = Ranks()
