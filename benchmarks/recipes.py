"""Which algorithm learns how fast? Trains recipes with several seeds on common ground, and writes what was measured.

    python benchmarks/recipes.py --home /tmp/recipes --workers 2
    python benchmarks/recipes.py --recipes grpo dapo rloo --seeds 0 1 2 --steps 100 --home /tmp/recipes --out docs/measured

Task, model, rewards, decoding and budget are the quickstart's; each recipe brings its algorithm (see
backend/contract/common_ground.py). Everything happens through a real backend and real workers in the directory --home; a second
call with the same one adds only what is missing or failed. --out gets recipes.md, recipes.csv and recipes.png.
"""

import csv
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path

import altair as alt
import pandas as pd
from learning import measure, wait
from results.page import command_line, home_in, stack, where
from results.page import table as markdown
from scale.site import site

from backend.contract.base import Json
from backend.contract.client import Client
from backend.contract.common_ground import comparable, distinct, sweep_of
from backend.contract.config import RUN_CONFIG
from backend.contract.recipes import QUICKSTART, RECIPES
from backend.contract.records import Run
from dashboard.charts.interval import Estimate, estimate
from dashboard.stored import get, put

SUCCESS, GREEDY = "eval/pass@1", "eval/greedy_pass@1"
AT_ONCE = 200  # runs in a sweep


@dataclass(frozen=True)
class Measured:
    """One run: its evaluations by step, and the median seconds of a step."""

    recipe: str
    seed: int
    success: dict[int, float]
    greedy: dict[int, float]
    seconds: float


def wanted(recipes: list[str], seeds: list[int], steps: int) -> list[dict[str, Json]]:
    """The bodies of the runs."""
    cards = {card.id: card for card in RECIPES}
    base = put(cards[QUICKSTART].config, "budget.steps", steps)
    assert isinstance(base, dict)
    bodies = sweep_of([cards[one] for one in recipes], base, seeds)
    return [body | {"config": RUN_CONFIG.validate_python(body["config"]).model_dump(mode="json")} for body in bodies]


def there(client: Client) -> list[Run]:
    """Every run of this home that finished or still may."""
    runs, cursor = [], None
    while True:
        page = client.runs(limit=200, cursor=cursor)
        runs += [run for run in page.items if run.status not in ("failed", "stopped")]
        cursor = page.next_cursor
        if cursor is None:
            return runs


def train(client: Client, bodies: list[dict[str, Json]]) -> list[Run]:
    """The runs, in the order of their bodies, once all have ended; those that are there already are not made again."""
    known = there(client)
    missing = [body for body in bodies if not any(run.config == body["config"] for run in known)]
    print(f"{len(bodies)} runs, {len(missing)} of them to be queued", flush=True)
    for start in range(0, len(missing), AT_ONCE):
        made = client.create_sweep("recipes", missing[start : start + AT_ONCE])
        known += [client.run(run.id) for run in made.runs]
    chosen = [next(run for run in known if run.config == body["config"]) for body in bodies]
    return wait(client, chosen)


def measured_of(client: Client, run: Run) -> Measured:
    """What a finished run measured."""
    series = {
        name: {step: value for step, value in points.items() if value is not None}
        for name, points in measure(client, run, (SUCCESS, GREEDY, "step_time"))["series"].items()
    }
    seconds = list(series.get("step_time", {}).values())
    return Measured(
        str(run.config["recipe"]),
        int(str(get(run.config, "budget.seed"))),
        series.get(SUCCESS, {}),
        series.get(GREEDY, {}),
        statistics.median(seconds) if seconds else float("nan"),
    )


def table(recipes: list[str], measured: list[Measured], steps: int, where: str, command: str) -> str:
    """The page: one row for each recipe."""
    header = ("recipe", "seeds", "pass@1 before → after, by seed", "gain", "95 %", "steps", "seconds per step")
    rows = []
    for recipe in recipes:
        own = [one for one in measured if one.recipe == recipe]
        ends = [(one.success[min(one.success)], one.success[max(one.success)]) for one in own if len(one.success) > 1]
        found = estimate([last - first for first, last in ends])
        rows.append(
            (
                f"`{recipe}`",
                ", ".join(str(one.seed) for one in own) or "–",
                ", ".join(f"{first:.3f} → {last:.3f}" for first, last in ends) or "–",
                "–" if found is None else f"{found.mean:+.3f}",
                "–" if found is None or found.low is None else f"{found.low:+.3f} to {found.high:+.3f}",
                str(steps),
                f"{statistics.median(one.seconds for one in own):.2f}" if own else "–",
            )
        )
    about = "Held-out sampled pass@1 before the first step and after the last, and the mean of the paired gains with its 95 % t interval."
    return f"# The recipes side by side\n\nMade by `{command}`. {where}\n\n{about}\n\n{markdown(header, rows)}\n"


def write_curves(path: Path, measured: list[Measured]) -> None:
    """Every evaluation as a row."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["recipe", "seed", "step", "pass@1", "greedy_pass@1"])
        for one in measured:
            for step, value in one.success.items():
                writer.writerow([one.recipe, one.seed, step, value, one.greedy.get(step, "")])


def draw(path: Path, recipes: list[str], measured: list[Measured]) -> None:
    """A small panel for each recipe: its mean and band over the seeds, the other recipes' means in grey behind it."""
    curves = {recipe: mean_curve([one for one in measured if one.recipe == recipe]) for recipe in recipes}
    points = pd.DataFrame(
        {"panel": panel, "recipe": recipe, "step": step, **asdict(found)}
        for panel in recipes
        if curves[panel]
        for recipe, curve in curves.items()
        for step, found in curve.items()
    )
    if points.empty:
        return
    success = alt.Y("mean:Q", title="held-out pass@1", scale=alt.Scale(domain=[0, 1]))
    lines = alt.Chart(points).encode(x=alt.X("step:Q", title="step"), y=success, detail="recipe:N")
    own = lines.transform_filter("datum.recipe === datum.panel")
    panel = alt.layer(
        lines.mark_line(color="#c8ccd2", strokeWidth=0.8),
        own.mark_area(color="#3a86d6", opacity=0.25, clip=True).encode(y=alt.Y("low:Q"), y2="high:Q"),
        own.mark_line(color="#1f5fa8", strokeWidth=1.8, point={"color": "#1f5fa8", "size": 16}),
    )
    titles = alt.Facet("panel:N", title=None, sort=recipes)
    panel.properties(width=200, height=130).facet(titles, columns=4).save(path, scale_factor=1.5)


def mean_curve(runs: list[Measured]) -> dict[int, Estimate]:
    """Step -> the mean of the runs' pass@1 there, with its interval."""
    steps = sorted({step for run in runs for step in run.success})
    found = {step: estimate([run.success[step] for run in runs if step in run.success]) for step in steps}
    return {step: one for step, one in found.items() if one is not None}


def main() -> None:
    ids = [card.id for card in distinct(comparable(RECIPES), next(c.config for c in RECIPES if c.id == QUICKSTART))]
    parser = command_line(__doc__)
    parser.add_argument("--recipes", nargs="+", choices=ids, default=ids, metavar="RECIPE", help=", ".join(ids))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--home", type=Path, help="kept, and gone on from by the next call")
    parser.add_argument("--workers", type=int, choices=[1, 2], default=1)
    parser.add_argument("--out", type=Path, help="a directory for the table, the curves and the figure")
    arguments = parser.parse_args()
    home = home_in(arguments.home, "recipes")
    print(f"home: {home}")
    with site(home, workers=arguments.workers) as running:
        runs = train(running.client, wanted(arguments.recipes, arguments.seeds, arguments.steps))
        measured = [measured_of(running.client, run) for run in runs if run.status == "finished"]
    for run in runs:
        if run.status != "finished":
            print(f"{run.name} {run.status}: {run.error.message if run.error else 'stopped by somebody'}")
    versions = ", ".join(" ".join(one) for one in stack("groupscope", "torch", "transformers").items())
    workers = f"{arguments.workers} worker{'s' if arguments.workers > 1 else ''}"
    here = where()
    conditions = f"{here['machine']}, {workers}, {here['date']}; {versions}."
    seeds = " ".join(map(str, arguments.seeds))
    command = f"python benchmarks/recipes.py --seeds {seeds} --steps {arguments.steps} --workers {arguments.workers}"
    page = table(arguments.recipes, measured, arguments.steps, conditions, command)
    print(page)
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "recipes.md").write_text(page)
        write_curves(arguments.out / "recipes.csv", measured)
        draw(arguments.out / "recipes.png", arguments.recipes, measured)
    if len(measured) < len(runs):
        raise SystemExit(
            f"{len(runs) - len(measured)} of {len(runs)} runs did not finish; call again to try them again"
        )


if __name__ == "__main__":
    main()
