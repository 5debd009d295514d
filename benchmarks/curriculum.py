"""Fewer tokens to the same success? Easy, learnable and impossible problems in one data set, drawn in three ways, with several seeds.

    python benchmarks/curriculum.py --seeds 0 1 2 3 4 --out docs/measured/curriculum.json

Problems: easy ones, which the built-in model knows; learnable ones, of which it knows half; impossible ones, whose answers are wrong.
Strategies: one after the other (uniform), the same with dead groups drawn again (resample), and by learnability (curriculum).
Measured: tokens of prompts and completions until an evaluation gets 0.9 of the held-out learnable problems right.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from learning import train
from results.page import command_line, home_in, keep, stack, table, where
from scale.site import site
from scipy import stats

from backend.contract.base import Json
from backend.contract.client import Client
from backend.contract.records import Run
from worker.tasks.arithmetic import problems, read_by_precedence, read_left_to_right

EACH = 400
GOAL = 0.9
METRIC = "eval/source/learnable/pass@1"
STRATEGIES: dict[str, dict[str, Json]] = {
    "uniform": {},
    "resample": {"algorithm": {"dead_groups": "resample"}},
    "curriculum": {"sampling": {"curriculum": {"half_life": 50, "uniform": 0.1}}},
}


def rows() -> list[dict[str, str]]:
    """The data set: the same for every run."""
    random = Random(0)
    shape = {"operands": 3, "low": 1, "high": 9, "operators": ("+", "-", "x")}
    every = [one.expression for one in problems(**shape, precedence=False)]  # type: ignore[arg-type]
    alike = [one for one in every if read_by_precedence(one).answer == read_left_to_right(one).answer]
    differ = [one for one in every if read_by_precedence(one).answer != read_left_to_right(one).answer]
    random.shuffle(alike)
    random.shuffle(differ)
    parts = {"easy": alike[:EACH], "learnable": differ[:EACH], "impossible": differ[EACH : 2 * EACH]}
    return [
        {
            "prompt": f"Calculate {expression}",
            "answer": "1000" if source == "impossible" else str(read_by_precedence(expression).answer),
            "source": source,
        }
        for source, expressions in parts.items()
        for expression in expressions
    ]


def config(upload: int, strategy: str, seed: int, steps: int) -> dict[str, Json]:
    """The quickstart's model and optimizer on the mixed data."""
    chosen = STRATEGIES[strategy]
    task: dict[str, Json] = {
        "kind": "dataset",
        "source": f"upload:{upload}",
        "source_column": "source",
        "held_out": 0.2,
    }
    sampling: dict[str, Json] = {"prompts_per_step": 16, "group_size": 8}
    return {
        "kind": "grpo",
        "task": task,
        "sampling": sampling | dict(chosen.get("sampling", {})),  # type: ignore[call-overload]
        "algorithm": chosen.get("algorithm", {}),
        "budget": {"steps": steps, "eval_every": 4, "eval_items": 240, "checkpoint_every": 0, "seed": seed},
        "telemetry": {"token_traces": "none", "probe_prompts": 0},
    }


def tokens_to_goal(client: Client, run: Run) -> float | None:
    """Tokens until the first evaluation at the goal, None if there was none."""
    series = client.metrics(run.id, names=[METRIC, "num_tokens"]).series
    spent = dict(zip(series["num_tokens"].step, series["num_tokens"].value, strict=True))
    for step, value in zip(series[METRIC].step, series[METRIC].value, strict=True):
        if value is not None and value >= GOAL:
            return 0.0 if step == 0 else spent.get(step - 1)
    return None


def ratio(ours: Sequence[float], others: Sequence[float]) -> tuple[float, float, float]:
    """The geometric mean of the ratios seed by seed, and its 95 % interval by Student's t on their logarithms."""
    logs = [math.log(one / other) for one, other in zip(ours, others, strict=True)]
    mean = sum(logs) / len(logs)
    low, high = stats.t.interval(0.95, len(logs) - 1, loc=mean, scale=stats.sem(logs))
    return math.exp(mean), math.exp(low), math.exp(high)


def main() -> None:
    """Train all, and print the table."""
    parser = command_line(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--out", type=Path, help="also write what was measured as JSON")
    asked = parser.parse_args()
    found: dict[str, list[float | None]] = {name: [] for name in STRATEGIES}
    with site(home_in(asked.home, "curriculum"), workers=1) as running:
        content = "".join(f"{json.dumps(row)}\n" for row in rows()).encode()
        upload = running.client.upload("mixed.jsonl", content).id
        for seed in asked.seeds:
            for name in STRATEGIES:
                run = train(running.client, config(upload, name, seed, asked.steps), f"{name}, seed {seed}")
                found[name].append(tokens_to_goal(running.client, run))
                print(f"{run.name}: {found[name][-1]} tokens", flush=True)
    measured: dict[str, Any] = where() | stack("groupscope", "torch") | {"tokens": found, "seeds": asked.seeds}
    lines = []
    for name, tokens in found.items():
        shown = ", ".join("not reached" if one is None else f"{one:,.0f}" for one in tokens)
        interval = ""
        pairs = [(a, b) for a, b in zip(found["curriculum"], tokens, strict=True) if a and b]
        if name != "curriculum" and len(pairs) > 1:
            mean, low, high = ratio(*zip(*pairs, strict=True))
            interval = f"{mean:.2f} ({low:.2f} to {high:.2f})"
        lines.append([name, shown, interval])
    print(
        table(["prompts drawn", f"tokens to pass@1 {GOAL} on the learnable ones, by seed", "curriculum / this"], lines)
    )
    keep(asked.out, **measured)


if __name__ == "__main__":
    main()
