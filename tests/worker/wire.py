"""A worker whose backend is a client that keeps what it is told."""

from collections.abc import Callable
from pathlib import Path

import torch
from pydantic import BaseModel

from backend.contract.client import Client
from backend.contract.protocol import Accepted, Claim, Heartbeat, HeartbeatReply, Report, Reports, WorkerInfo
from backend.contract.records import Requested
from worker.settings import Settings
from worker.worker import Worker


class Wire(Client):
    """A client that keeps what it is told; reports can meet trouble."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1", "token")
        self.told: list[BaseModel] = []
        self.trouble: Exception | None = None
        self.requested: Requested = "nothing"

    def heartbeat(self, run_id: int, beat: Heartbeat) -> HeartbeatReply:
        return HeartbeatReply(requested=self.requested, lease_seconds=30)

    def report(self, run_id: int, report: Report) -> Accepted:
        if self.trouble is not None:
            raise self.trouble
        return self._take(run_id, report)

    def reports(self, run_id: int, together: Reports) -> Accepted:
        return [self.report(run_id, one) for one in together.reports][-1]

    def _take(self, run_id: int, message: BaseModel) -> Accepted:
        self.told.append(message)
        return Accepted()

    start = checkpoint = finish = fail = _take  # type: ignore[assignment]


def claimed(config: dict[str, object], *, lease_seconds: float = 30) -> Claim:
    claim = {"run_id": 7, "name": "a run", "attempt": 1, "config": config, "secret": "shown"}
    return Claim.model_validate(claim | {"lease_seconds": lease_seconds})


def worker(home: Path, wire: Wire, shutting_down: Callable[[], bool] = lambda: False, **changes: object) -> Worker:
    settings = Settings.model_validate({"home": home, **changes})
    info = WorkerInfo(name="one", device="CPU", store=f"{settings.store}#1")
    return Worker(settings, info, wire, torch.device("cpu"), shutting_down)
