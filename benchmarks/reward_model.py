"""Does a reward model learn what is right, and does a policy learn from it alone? Trains both with several seeds.

    python benchmarks/reward_model.py --seeds 0 1 2 --out docs/measured/reward-model.json

Each seed is one run of the recipe `reward-model`, then one of the recipe `grpo` whose only reward is that model; correctness is
measured beside it with weight 0. The configurations are those that the recipe's card and the page's button fill into the form.
"""

import argparse
import json
import os
import platform
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from learning import processes

from backend.contract.base import Json
from backend.contract.client import Client
from backend.contract.recipes import QUICKSTART, RECIPES
from backend.contract.records import TERMINAL, Run
from dashboard.form.paths import put
from dashboard.form.reward import rewarded_by

CARDS = {card.id: card for card in RECIPES}
SERIES = ("eval/accuracy", "eval/margin", "eval/pass@1", "rewards/reward-model/mean", "rewards/correctness/mean")


def train(client: Client, config: Json, name: str) -> Run:
    """One run, to its end."""
    assert isinstance(config, dict)
    run = client.create_run(config, name=name)
    while run.status not in TERMINAL:
        time.sleep(1)
        run = client.run(run.id)
    if run.status != "finished":
        raise SystemExit(f"{name} {run.status}: {run.error}")
    print(f"{name}: done", flush=True)
    return run


def measure(client: Client, run: Run) -> dict[str, object]:
    """The series of a finished run, and its wall time."""
    assert run.started_at is not None
    assert run.finished_at is not None
    series = client.metrics(run.id, names=SERIES).series
    return {
        "seconds": round((run.finished_at - run.started_at).total_seconds(), 1),
        "series": {name: dict(zip(points.step, points.value, strict=True)) for name, points in series.items()},
    }


def main() -> None:
    """Parse, train, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--advantage", choices=["group_center"], help="instead of the recipe's group_zscore")
    parser.add_argument("--home", type=Path)
    parser.add_argument("--out", type=Path, help="also write the series as JSON")
    arguments = parser.parse_args()
    home = arguments.home or Path(tempfile.mkdtemp(prefix="groupscope-reward-model-"))
    home.mkdir(parents=True, exist_ok=True)
    results = []
    with processes(home) as client:
        for seed in arguments.seeds:
            judge = train(client, put(CARDS["reward-model"].config, "budget.seed", seed), f"reward model, seed {seed}")
            config: Json = rewarded_by(judge, judge.progress.step, CARDS[QUICKSTART])
            if arguments.advantage is not None:
                config = put(config, "algorithm.advantage", {"kind": arguments.advantage})
            policy = train(client, put(config, "budget.seed", seed), f"grpo on it, seed {seed}")
            results.append({"seed": seed, "reward_model": measure(client, judge), "grpo": measure(client, policy)})
    stack = {name: version(name) for name in ("groupscope", "torch", "transformers")}
    where = {"machine": f"{platform.machine()}, {os.cpu_count()} cores", "date": time.strftime("%Y-%m-%d"), **stack}
    print(json.dumps(where))
    print(json.dumps(results, indent=1))
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps({**where, "runs": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
