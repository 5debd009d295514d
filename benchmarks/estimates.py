"""Preflight's estimates of memory and time against a few steps that are really trained, each work in a process of its own.

    python benchmarks/estimates.py --models DIRECTORY               # the table of docs/inspector/before-launch.md
    python benchmarks/estimates.py --models DIRECTORY quickstart    # one work alone

What a process holds before it loads a model (Python, PyTorch) is no part of an estimate, and is shown beside it.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import torch
from sides.pipe import peak_memory
from sides.workloads import LONG, QUICKSTART_WORK, REFERENCE, Workload

from backend.contract.client import Client
from backend.contract.protocol import (
    Accepted,
    CheckpointReport,
    Claim,
    Fail,
    Finish,
    Heartbeat,
    HeartbeatReply,
    Report,
    Start,
    WorkerInfo,
)
from backend.preflight.facts import Facts, WorkerFacts
from backend.preflight.preflight import preflight
from worker.job import Worker, run_claim
from worker.policy.device import describe, keep_freed_memory, memory_bytes
from worker.settings import Settings

WORKS = {"quickstart": QUICKSTART_WORK, "reference": REFERENCE, "long": LONG}
STEPS = 4  # trained; the first is left out of the times
MIB = 2**20


class Listener(Client):
    """A backend that keeps the times of the steps and accepts all else."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1", "token")
        self.seconds: list[float] = []

    def heartbeat(self, run_id: int, beat: Heartbeat) -> HeartbeatReply:
        """Nothing is asked."""
        return HeartbeatReply(requested="nothing", lease_seconds=600)

    def report(self, run_id: int, report: Report) -> Accepted:
        """Keep how long the step took."""
        seconds = report.metrics.get("step_time")
        if seconds is not None:
            self.seconds.append(seconds)
        return Accepted()

    def start(self, run_id: int, start: Start) -> Accepted:
        """It began."""
        return Accepted()

    def checkpoint(self, run_id: int, checkpoint: CheckpointReport) -> Accepted:
        """It was saved."""
        return Accepted()

    def finish(self, run_id: int, finish: Finish) -> Accepted:
        """It ended."""
        return Accepted()

    def fail(self, run_id: int, fail: Fail) -> Accepted:
        """Nothing was measured."""
        raise RuntimeError(fail.error.message)


def measure(name: str, models: Path) -> str:
    """A row of the table. To be called once in a process, whose peak it reads."""
    work: Workload = WORKS[name]
    config = work.stored({})
    steps = {"steps": STEPS, "eval_every": 0, "checkpoint_every": 0}
    config |= {"budget": steps, "optimizer": {**work.config.optimizer.model_dump(), "warmup_steps": 0}}
    device = torch.device("cpu")
    keep_freed_memory()
    before = peak_memory() or 0
    with tempfile.TemporaryDirectory() as home:
        (Path(home) / "models").symlink_to(models.resolve())
        client = Listener()
        settings = Settings.model_validate({"home": home})
        info = WorkerInfo(name="one", device=describe(device), store="one")
        claim = {"run_id": 1, "name": name, "attempt": 1, "config": config, "lease_seconds": 600}
        run_claim(Worker(settings, info, client, device, lambda: False), Claim.model_validate(claim))
    held = (peak_memory() or 0) - before
    facts = Facts(workers=[WorkerFacts(info.device, memory_bytes(device))])
    estimated = preflight(work.config, facts)
    if estimated.memory is None or estimated.time is None:
        raise RuntimeError("no estimate")
    seconds = median(client.seconds[1:])
    parts = ", ".join(f"{part} {value / MIB:,.0f}" for part, value in estimated.memory.parts.items() if value)
    return (
        f"| {work.about} | {estimated.memory.total_bytes / MIB:,.0f} MiB ({parts}) | {held / MIB:,.0f} MiB, and {before / MIB:,.0f} "
        f"before | {estimated.time.seconds_per_step:.2g} s | {seconds:.2g} s |"
    )


def main() -> None:
    """Print the table, from a process for each work."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", nargs="?", choices=WORKS)
    parser.add_argument("--models", type=Path, required=True, help="where models that were converted are kept")
    asked = parser.parse_args()
    if asked.work:
        print(measure(asked.work, asked.models))  # noqa: T201
        return
    print("| work | memory, estimated | measured | step, estimated | measured |\n|---|---|---|---|---|", flush=True)  # noqa: T201
    for name in WORKS:
        command = [sys.executable, __file__, name, "--models", str(asked.models)]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
