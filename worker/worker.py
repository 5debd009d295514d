"""What all runs of a worker's process share."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, get_args

import torch

from backend.contract.client import Client
from backend.contract.config import Kind
from backend.contract.groups import Group
from backend.contract.protocol import Claim, ClaimReply, ClaimRequest, WorkerInfo
from backend.contract.records import OfferedModel, RewardFile
from backend.contract.spool import Spool
from worker.cluster.cluster import Cluster
from worker.ranks.nodes import Followers
from worker.rollout.engine import quiet
from worker.settings import Settings
from worker.store import Show, Store, store_of


class Reads(Protocol):
    """What is read of the backend to compute a run."""

    def upload_content(self, upload_id: int, /) -> bytes:
        """A person's rows as JSON lines."""

    def all_groups(self, run_id: int, /) -> list[Group]:
        """Every group of a run, with its completions."""

    def step_groups(self, run_id: int, step: int, /) -> list[Group]:
        """Every live group of a step, with its completions."""

    def step_metrics(self, run_id: int, step: int, /) -> dict[str, float | None]:
        """The metrics of a step by name."""


@dataclass(frozen=True)
class Computing:
    """A worker as far as it computes: a process of a run has this alone."""

    settings: Settings
    info: WorkerInfo
    client: Reads
    device: torch.device
    show_fetch: Show  # of the run in hand: what is fetched for it

    @property
    def store(self) -> Store:
        """Where the checkpoints lie that it reaches."""
        return store_of(self.settings)


@dataclass(frozen=True)
class Worker:
    """What every job of this process shares."""

    settings: Settings
    info: WorkerInfo
    client: Client
    device: torch.device
    shutting_down: Callable[[], bool]
    devices: Sequence[torch.device] = ()  # of the processes that train one run together, the same one first
    cluster: Cluster | None = None  # what computes in the place of this process
    followers: Followers | None = None  # the other nodes that train one run with this one
    hurried: Callable[[], bool] = lambda: False  # asked twice to shut down
    # At once, with whether the run is over; a fresh process takes its place unless this one was asked to end.
    end_process: Callable[[bool], None] = lambda over: None
    reward_files: Callable[[], list[RewardFile]] = list  # what its folder of rewards offers now
    models: Callable[[], list[OfferedModel]] = list  # what lies below its model root and in its cache now
    show_fetch: Show = quiet  # of the run in hand: what is fetched for it
    ending: threading.Lock = field(default_factory=threading.Lock)
    held: "list[tuple[Claim, Spool]]" = field(default_factory=list)  # a sample is served inside of a training run

    @property
    def missing_nodes(self) -> list[int]:
        """Without these it takes no run."""
        return [] if self.followers is None else self.followers.missing

    def ask(self, *kinds: Kind) -> ClaimReply:
        """For a run to work on, of these kinds or of all; for none, to be heard of, where there is no room. Raises ApiError, Unreachable."""
        processes = self.info.processes if self.cluster is None else self.cluster.free()
        missing = self.missing_nodes
        now = {
            "processes": processes or self.info.processes,
            "reward_files": self.reward_files(),
            "models": self.models(),
            "missing_nodes": missing,
        }
        wanted: Sequence[Kind] = () if missing or not processes else kinds or get_args(Kind)
        return self.client.ask(ClaimRequest(worker=self.info.model_copy(update=now), kinds=list(wanted)))

    @property
    def store(self) -> Store:
        """Where the checkpoints lie that it reaches."""
        return store_of(self.settings)

    @property
    def computing(self) -> Computing:
        """What computes the run in hand in this process."""
        return Computing(self.settings, self.info, self.client, self.device, self.show_fetch)

    @property
    def spool_folder(self) -> Path:
        """This worker's own spool."""
        return self.settings.home.resolve() / "spool" / self.info.name
