"""Does it learn? Trains a recipe with several seeds through a real backend and worker, and prints what was measured.

    python benchmarks/learning.py grpo --seeds 0 1 2
    python benchmarks/learning.py smollm2-arithmetic --seeds 0 1 2 --out docs/measured/smollm2-arithmetic.json

Everything happens in a home directory of its own (--home keeps it), on ports that are free.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from results.page import command_line, home_in, keep, stack, where

from backend.contract.base import Json
from backend.contract.client import Client
from backend.contract.recipes import RECIPES
from backend.contract.records import TERMINAL, Run
from dashboard.stored import put

SERIES = ("reward", "eval/pass@1", "eval/greedy_pass@1", "kl", "step_time")


@contextmanager
def processes(home: Path, workers: int = 1) -> Iterator[Client]:
    """A backend and workers on this home, ended afterwards; several workers have one thread each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    environment = os.environ | {"GROUPSCOPE_HOME": str(home), "GROUPSCOPE_BACKEND_PORT": str(port)}
    with (home / "backend.log").open("ab") as backend_log, (home / "worker.log").open("ab") as worker_log:
        started = [subprocess.Popen([sys.executable, "-m", "backend.app"], env=environment, stderr=backend_log)]
        try:
            client = _wait_for(url, home)
            command = [sys.executable, "-m", "worker.main", "--backend", url]
            threads = {} if workers == 1 else {"OMP_NUM_THREADS": "1"}
            for _ in range(workers):
                started.append(subprocess.Popen(command, env=environment | threads, stderr=worker_log))
            with client:
                yield client
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait(timeout=30)


def _wait_for(url: str, home: Path) -> Client:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if (home / "token").exists():
            client = Client(url, (home / "token").read_text().strip())
            if client.healthy():
                return client
            client.close()
        time.sleep(0.2)
    raise TimeoutError(f"the backend did not come up; see {home / 'backend.log'}")


def train(client: Client, config: Json, name: str) -> Run:
    """One run, to its end, with a line of progress."""
    assert isinstance(config, dict)
    run = client.create_run(config, name=name)
    while run.status not in TERMINAL:
        time.sleep(1)
        run = client.run(run.id)
        reward = run.summary.get("reward")
        shown = "" if reward is None else f"reward {reward:.3f}"
        print(f"\r{run.name}: step {run.progress.step}/{run.progress.total_steps} {shown}   ", end="", flush=True)
    print()
    if run.status != "finished":
        raise SystemExit(f"{run.name} {run.status}: {run.error}")
    return run


def measure(client: Client, run: Run, names: Sequence[str]) -> dict[str, Any]:
    """Series of a finished run, and its wall time."""
    series = client.metrics(run.id, names=names).series
    assert run.started_at is not None
    assert run.finished_at is not None
    return {
        "seconds": round((run.finished_at - run.started_at).total_seconds(), 1),
        "series": {name: dict(zip(points.step, points.value, strict=True)) for name, points in series.items()},
    }


def main() -> None:
    """Parse, train, print."""
    parser = command_line(__doc__)
    parser.add_argument("recipe", choices=[card.id for card in RECIPES if card.config["kind"] == "grpo"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--home", type=Path)
    parser.add_argument("--out", type=Path, help="also write the series as JSON")
    arguments = parser.parse_args()
    recipe, results = next(card for card in RECIPES if card.id == arguments.recipe), []
    with processes(home_in(arguments.home, "learning")) as client:
        for seed in arguments.seeds:
            run = train(client, put(recipe.config, "budget.seed", seed), f"{recipe.id}, seed {seed}")
            results.append({"seed": seed, **measure(client, run, SERIES)})
    measured = where() | stack("groupscope", "torch", "transformers")
    print(json.dumps(measured))
    print("seed  seconds  step_time  reward first 5  reward last 10  pass@1 first  pass@1 last")
    for result in results:
        series = result["series"]
        rewards, right = list(series["reward"].values()), list(series.get("eval/pass@1", {0: float("nan")}).values())
        print(
            f"{result['seed']!s:>4}  {result['seconds']!s:>7}  {statistics.median(series['step_time'].values()):>9.2f}"
            f"  {statistics.fmean(rewards[:5]):>14.3f}  {statistics.fmean(rewards[-10:]):>14.3f}"
            f"  {right[0]:>12.3f}  {right[-1]:>11.3f}"
        )
    keep(arguments.out, **measured, recipe=recipe.id, runs=results)


if __name__ == "__main__":
    main()
