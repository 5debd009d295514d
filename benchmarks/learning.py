"""Does it learn? Trains a recipe with several seeds through a real backend and worker, and prints what was measured.

    python benchmarks/learning.py grpo --seeds 0 1 2
    python benchmarks/learning.py smollm2-arithmetic --seeds 0 1 2 --out docs/measured/smollm2-arithmetic.json
    python benchmarks/learning.py grpo --processes 2 --seeds 0 1 2 --out docs/measured/grpo-two-processes.json

Everything happens in a home directory of its own (--home keeps it), on ports that are free.
"""

import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from results.page import command_line, home_in, keep, stack, where
from scale.site import site

from backend.contract.base import Json
from backend.contract.client import Client
from backend.contract.recipes import RECIPES
from backend.contract.records import TERMINAL, Run
from dashboard.comparison.selection import how_far
from dashboard.stored import put

SERIES = ("reward", "eval/pass@1", "eval/greedy_pass@1", "kl", "step_time")
SILENCE = 24  # looks, five seconds apart, without a worker; a machine that stood still did not look


def train(client: Client, config: Json, name: str) -> Run:
    assert isinstance(config, dict)
    [run] = wait(client, [client.create_run(config, name=name)])
    if run.status != "finished":
        raise SystemExit(f"{run.name} {run.status}: {run.error}")
    return run


def wait(client: Client, runs: list[Run]) -> list[Run]:
    """The runs at their ends; says how far they are whenever that changes."""
    silent, said = 0, ""
    while True:
        runs = [run if run.status in TERMINAL else client.run(run.id) for run in runs]
        parts = [how_far(runs)]
        for run in runs:
            if run.status == "running":
                reward = run.summary.get("reward")
                shown = "" if reward is None else f", reward {reward:.3f}"
                parts.append(f"{run.name} {run.progress.step}/{run.progress.total_steps}{shown}")
        line = " · ".join(parts)
        if line != said:
            print(line, flush=True)
            said = line
        if all(run.status in TERMINAL for run in runs):
            return runs
        silent = 0 if any(worker.alive for worker in client.workers()) else silent + 1
        if silent > SILENCE:
            raise SystemExit("no worker was heard of for two minutes: see the logs of workers in the home directory")
        time.sleep(5)


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
    parser = command_line(__doc__)
    parser.add_argument("recipe", choices=[card.id for card in RECIPES if card.config["kind"] == "grpo"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--processes", type=int, default=1, help="that train each run together")
    parser.add_argument("--home", type=Path)
    parser.add_argument("--out", type=Path, help="also write the series as JSON")
    arguments = parser.parse_args()
    recipe, results = next(card for card in RECIPES if card.id == arguments.recipe), []
    config = put(recipe.config, "compute.processes", arguments.processes)
    with site(home_in(arguments.home, "learning"), workers=1, PROCESSES=str(arguments.processes)) as running:
        for seed in arguments.seeds:
            run = train(running.client, put(config, "budget.seed", seed), f"{recipe.id}, seed {seed}")
            results.append({"seed": seed, **measure(running.client, run, SERIES)})
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
