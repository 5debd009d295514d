"""Does the exported script learn what the run does? Trains a recipe here, and under TRL by the script that the form exports.

    python benchmarks/trl_script.py --seeds 0 1 2 --out docs/measured/trl-script.json

Each seed trains here and there in turns, with one backend, where the groups of both are recorded. Printed are the mean reward of the last
ten steps, the share of held-out prompts that were answered right, and the paired difference with its 95 % interval by Student's t.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from learning import measure, train
from results.page import ROOT, command_line, home_in, keep, stack, table, where
from scale.site import TOKEN, Site, site

from backend.contract.base import Json
from backend.contract.recipes import RECIPES
from backend.contract.trl_script import trl_script
from dashboard.charts.interval import estimate
from dashboard.stored import put

RIGHT = {"here": "eval/pass@1", "TRL": "eval/rewards/correctness/mean"}
LAST = 10  # steps


def run_script(running: Site, folder: Path, config: Json, name: str) -> dict[str, object]:
    """Train under TRL, to its end, and measure the run that was recorded of it."""
    assert isinstance(config, dict)
    folder.mkdir(parents=True)
    (folder / "script.py").write_text(trl_script(config, name), encoding="utf-8")
    settings = {"HOME": str(running.database.parent), "TOKEN": TOKEN, "BACKEND_URL": running.backend_url}
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {f"GROUPSCOPE_{key}": value for key, value in settings.items()} | {"PYTHONPATH": paths}
    began = time.monotonic()
    with (folder / "log").open("wb") as log:
        done = subprocess.run(
            [sys.executable, "script.py"], cwd=folder, env=environment, stdout=log, stderr=log, check=False
        )
    if done.returncode:
        raise SystemExit(f"the script ended with {done.returncode}; see {folder / 'log'}")
    recorded = next(run for run in running.client.runs(kind="recorded").items if run.name == name)
    return {"program_seconds": round(time.monotonic() - began, 1), **measure(running.client, recorded, ("reward", RIGHT["TRL"]))}  # fmt: skip


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--recipe", choices=[card.id for card in RECIPES if card.config["kind"] == "grpo"], default="grpo")  # fmt: skip
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, help="instead of the recipe's")
    parser.add_argument("--home", type=Path)
    parser.add_argument("--out", type=Path, help="also write the series as JSON")
    arguments = parser.parse_args()
    recipe, results = next(card for card in RECIPES if card.id == arguments.recipe), []
    home = home_in(arguments.home, "trl-script")
    with site(home, workers=1) as running:
        for seed in arguments.seeds:
            config = put(recipe.config, "budget.seed", seed)
            if arguments.steps is not None:
                config = put(config, "budget.steps", arguments.steps)
            here = train(running.client, config, f"here, seed {seed}")
            measured = measure(running.client, here, ("reward", RIGHT["here"]))
            assert isinstance(here.config, dict)
            there = run_script(running, home / f"trl-{seed}", here.config, f"TRL, seed {seed}")
            results.append({"seed": seed, "here": measured, "TRL": there})
            print(json.dumps({"seed": seed, **{side: summary(results[-1], side) for side in RIGHT}}), flush=True)
    kept = where() | stack("groupscope", "trl", "torch", "transformers")
    print(shown(results))
    print(json.dumps(kept))
    keep(arguments.out, **kept, recipe=recipe.id, runs=results)


def summary(result: dict[str, Json], side: str) -> dict[str, float]:
    """The reward at the end, and the share of right answers in the last evaluation."""
    series = result[side]["series"]  # type: ignore[index, call-overload]
    rewards, right = list(series["reward"].values()), list(series[RIGHT[side]].values())
    return {"reward": statistics.fmean(rewards[-LAST:]), "right": right[-1], "right before": right[0]}


def shown(results: list[dict[str, Json]]) -> str:
    """A line for each seed, and the difference of both sides."""
    rows = [{side: summary(result, side) for side in RIGHT} for result in results]
    lines = [
        [
            str(result["seed"]),
            *(f"{row[side]['reward']:.3f}" for side in RIGHT),
            *(f"{row[side]['right before']:.3f} → {row[side]['right']:.3f}" for side in RIGHT),
            *(f"{result[side]['seconds']:.0f} s" for side in RIGHT),  # type: ignore[index, call-overload]
        ]
        for result, row in zip(results, rows, strict=True)
    ]
    header = ["seed", "reward here", "reward TRL", "right here", "right TRL", "time here", "time TRL"]
    differences = {
        name: [row["TRL"][name] - row["here"][name] for row in rows] for name in ("reward", "right")
    }  # fmt: skip
    said = [f"{name}: TRL less here {between(values)}" for name, values in differences.items()]
    return table(header, lines) + "\n\n" + "; ".join(said)


def between(values: list[float]) -> str:
    """The mean with its 95 % interval, if there are several."""
    found = estimate(values)
    assert found is not None
    return f"{found.mean:+.3f}" + ("" if found.low is None else f" (95 % {found.low:+.3f} to {found.high:+.3f})")


if __name__ == "__main__":
    main()
