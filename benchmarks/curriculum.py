"""Fewer tokens to the same success? Easy, learnable and impossible problems in one data set, drawn in three ways, with several seeds.

    python benchmarks/curriculum.py --seeds 0 1 2 3 4 --out docs/measured/curriculum.jsonl

Problems: easy ones, which the built-in model knows; learnable ones, which it gets right in 2 to 6 of 8 tries; impossible ones, whose
reference answers are wrong. Strategies: one prompt after the other (uniform), the same with dead groups drawn again (resample), and by learnability
(curriculum). Measured: tokens of prompts and completions until an evaluation gets 0.9 of the held-out learnable problems right.

Each run is a line of --out as soon as it is over; the same command goes on after the last one.
"""

import json
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

from learning import train
from pydantic import BaseModel
from results.page import MEASURED, PAGE, command_line, home_in, show_tables, stack, table, where
from scale.site import site

from backend.contract.base import Json
from backend.contract.client import Client
from backend.contract.grpo import GrpoConfig
from backend.contract.records import STOPS, TERMINAL
from backend.contract.task import Arithmetic, digest
from dashboard.before_launch.success_rates import rates_of
from dashboard.charts.interval import t_quantile
from dashboard.stored import put
from worker.tasks.arithmetic import problems, read_left_to_right

GOAL = 0.9
HELD_OUT = 40
METRIC = "eval/source/learnable/pass@1"
STRATEGIES: dict[str, dict[str, Json]] = {
    "curriculum": {"sampling.curriculum": {}},
    "uniform": {},
    "resample": {"algorithm.dead_groups": "resample"},
}
PAUSE = 1.0  # seconds between two looks at a run


class Measured(BaseModel):
    """One run: whether it reached the goal, the tokens until then or until its end, and the learnable part's pass@1 by step."""

    strategy: str
    seed: int
    reached: bool
    tokens: int
    success: dict[int, float | None]
    conditions: dict[str, str]


def learnable(client: Client, wanted: int) -> list[str]:
    """The first prompts of the quickstart's task that the built-in model gets right in 2 to 6 of 8 tries."""
    default = GrpoConfig()
    config: dict[str, Json] = {
        "kind": "sample",
        "task": Arithmetic().model_dump(mode="json"),
        "task_prompts": 2 * wanted,
        "group_size": 8,
        "rewards": default.rewards.model_dump(mode="json"),
        "decoding": {"max_new_tokens": default.sampling.max_new_tokens},
    }
    sample = train(client, config, "which are learnable")
    groups = [one for step in range(sample.progress.step + 1) for one in client.step_scores(sample.id, step).groups]
    rates = rates_of(groups, sample.config, None)
    found = [group.prompt for group in groups if 0.25 <= rates[group.prompt_id] <= 0.75][:wanted]
    if len(found) < wanted:
        raise SystemExit(f"{len(found)} of {len(groups)} problems are learnable, and {wanted} are needed")
    return found


def rows(learnable: Sequence[str], each: int) -> list[dict[str, str]]:
    """The data set, the same for every run: twice as many easy and impossible problems as learnable ones to train on.

    Prompts with the lowest hashes are held out: of the easy and impossible problems only those are taken that have higher ones.
    """
    default = Arithmetic()
    shape = (default.operands, default.low, default.high, tuple(default.operators))
    answers = {
        default.template.replace("{expression}", one.expression): (
            one.answer,
            read_left_to_right(one.expression).answer,
        )
        for one in problems(*shape, precedence=False)
    }
    highest = sorted(map(digest, learnable))[HELD_OUT - 1]
    others = [prompt for prompt in answers if prompt not in learnable and digest(prompt) > highest]
    Random(0).shuffle(others)
    parts = {
        "easy": [prompt for prompt in others if len(set(answers[prompt])) == 1][: 2 * each],
        "learnable": learnable,
        "impossible": [prompt for prompt in others if len(set(answers[prompt])) == 2][: 2 * each],
    }
    return [
        {"prompt": prompt, "answer": "100000" if source == "impossible" else str(answers[prompt][0]), "source": source}
        for source, chosen in parts.items()
        for prompt in chosen
    ]


def config(upload: int, rows: int, strategy: str, seed: int, steps: int) -> dict[str, Json]:
    """The quickstart's model on the mixed data, at twice its learning rate and with a quarter of its prompts a step."""
    common: dict[str, Json] = {
        "kind": "grpo",
        "task": {
            "kind": "dataset",
            "source": f"upload:{upload}",
            "source_column": "source",
            "held_out": HELD_OUT / rows,
        },
        "sampling": {"prompts_per_step": 4, "group_size": 8},
        "optimizer": {"learning_rate": 1e-4, "warmup_steps": min(5, steps)},
        "budget": {
            "steps": steps,
            "eval_every": 8,
            "eval_items": HELD_OUT,
            "eval_samples": 2,
            "checkpoint_every": 0,
            "seed": seed,
        },
        "telemetry": {"token_traces": "none", "probe_prompts": 0},
    }
    for path, value in STRATEGIES[strategy].items():
        common = put(common, path, value)  # type: ignore[assignment]
    return common


def measure(client: Client, wanted: Mapping[str, Json], strategy: str, seed: int) -> Measured:
    """Train until an evaluation reaches the goal, or to the last step."""
    run = client.create_run(wanted, name=f"{strategy}, seed {seed}")
    while True:
        run = client.run(run.id)
        success, tokens = series_of(client, run.id, METRIC), series_of(client, run.id, "num_tokens")
        reached = next((step for step, value in sorted(success.items()) if value is not None and value >= GOAL), None)
        if run.status in TERMINAL:
            break
        if reached is not None and run.requested not in STOPS:
            client.command(run.id, "stop")
        time.sleep(PAUSE)
    if run.status not in ("finished", "stopped"):
        raise SystemExit(f"{run.name} {run.status}: {run.error}")
    last = run.progress.step if reached is None else reached  # an evaluation at step k was made after k steps
    return Measured(
        strategy=strategy,
        seed=seed,
        reached=reached is not None,
        tokens=int(tokens.get(last - 1) or 0),
        success=success,
        conditions=where() | stack("groupscope", "torch"),
    )


def series_of(client: Client, run: int, name: str) -> dict[int, float | None]:
    """A metric by step, as far as it is known."""
    found = client.metrics(run, names=[name]).series.get(name)
    return {} if found is None else dict(zip(found.step, found.value, strict=True))


def ratio(ours: Sequence[int], others: Sequence[int]) -> tuple[float, float, float]:
    """The geometric mean of the ratios seed by seed, and its 95 % interval by Student's t on their logarithms."""
    logs = [math.log(one / other) for one, other in zip(ours, others, strict=True)]
    middle = statistics.fmean(logs)
    half = t_quantile(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def summary(measured: Sequence[Measured]) -> str:
    """A row for each strategy.

    Where another strategy did not reach the goal, its tokens are fewer than it would have needed, and the ratio is higher than it
    would have been. Where the curriculum did not, there is none.
    """
    runs = {(one.strategy, one.seed): one for one in measured}
    seeds = sorted({one.seed for one in measured if all((name, one.seed) in runs for name in STRATEGIES)})
    ours = [runs["curriculum", seed] for seed in seeds]
    lines = []
    for name in STRATEGIES:
        its = [runs[name, seed] for seed in seeds]
        shown = [f"{one.tokens:,}" if one.reached else f"not within {one.tokens:,}" for one in its]
        compared = ""
        if name != "curriculum" and len(seeds) > 1 and all(one.reached for one in ours):
            middle, low, high = ratio([one.tokens for one in ours], [one.tokens for one in its])
            compared = f"{middle:.2f} ({low:.2f} to {high:.2f})"
        lines.append([name, *shown, compared])
    said = [
        f"{value}" if name in ("machine", "date") else f"{name} {value}"
        for name, value in measured[-1].conditions.items()
    ]
    found = table(["prompts drawn", *(f"seed {seed}" for seed in seeds), "tokens of curriculum / of this"], lines)
    return f"{found}\n\n{', '.join(said)}."


def train_all(runs: Sequence[tuple[str, int]], out: Path, home: Path, *, each: int, steps: int) -> list[Measured]:
    """Train these strategies with these seeds, and write each to the file once it is over."""
    measured: list[Measured] = []
    with site(home, workers=1) as running, out.open("a") as file:
        data = rows(learnable(running.client, each + HELD_OUT), each)
        upload = running.client.upload("mixed.jsonl", "".join(f"{json.dumps(row)}\n" for row in data).encode()).id
        for strategy, seed in runs:
            one = measure(running.client, config(upload, len(data), strategy, seed, steps), strategy, seed)
            print(one.model_dump_json(), file=file, flush=True)
            print(f"{strategy}, seed {seed}: {one.tokens:,} tokens", flush=True)
            measured.append(one)
    return measured


def main() -> None:
    """Train what was not trained yet, and print the table."""
    began, parser = time.monotonic(), command_line(__doc__, kept=MEASURED / "curriculum.jsonl", page=PAGE)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--steps", type=int, default=400, help="at most")
    parser.add_argument("--each", type=int, default=60, help="learnable problems to train on")
    parser.add_argument("--home", type=Path)
    asked = parser.parse_args()
    out: Path = asked.out
    out.parent.mkdir(parents=True, exist_ok=True)
    lines = out.read_text().splitlines() if out.exists() else []
    measured = [Measured.model_validate_json(line) for line in lines]
    done = {(one.strategy, one.seed) for one in measured}
    missing = [(strategy, seed) for seed in asked.seeds for strategy in STRATEGIES if (strategy, seed) not in done]
    if missing:
        measured += train_all(missing, out, home_in(asked.home, "curriculum"), each=asked.each, steps=asked.steps)
    show_tables(summary(measured), asked, began, "measured curriculum")


if __name__ == "__main__":
    main()
