"""Your own task, with the clock: docs/own-task.md in a browser, from an empty home to a run that learns.

    python benchmarks/own_task.py --seeds 0 1 2 --out docs/measured/own-task.json

A person brings a CSV of 400 problems and ten lines of reward, which are written and mended while the form is open; measures the
data set; keeps a band of it; and starts: first with the tiny model, then, with easier problems, SmolLM2 and LoRA. Both forms are then
trained with every seed.
"""

import csv
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from learning import measure, train, wait
from playwright.sync_api import Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeout
from results.page import command_line, home_in, keep, stack, table, where
from scale.site import Site, site
from scale.views import PATIENCE, chromium

from backend.contract.base import Json
from backend.operations.new_reward import new_reward
from dashboard.charts.interval import estimate
from dashboard.stored import put
from worker.tasks.arithmetic import Problem, problems

ROWS = 400
MEASURING = 600_000.0  # milliseconds
REWARDS = ".st-key-section-rewards"
SERIES = ("eval/pass@1", "reward")

BROKEN = 'def reward(completion, answer:\n    """1 if the answer is right."""\n'
ALWAYS_0 = (
    'def reward(completion, answer):\n    """1 if the answer is right."""\n    return float(completion == answer)\n'
)
RIGHT = '''import re


def reward(completion, answer, *, for_digits=0.0):
    """1 if the last number is the answer."""
    numbers = re.findall(r"-?\\d+", completion)
    if not numbers:
        return 0.0
    return 1.0 if numbers[-1] == answer else for_digits
'''


@dataclass(frozen=True)
class Model:
    """What a person chooses for a model; `measured` are prompts and completions, or what the button measures by itself."""

    problems: Sequence[Problem]
    recipe: str
    template: str
    adapters: bool = False
    measured: tuple[int, int] | None = None


MODELS = {
    "tiny-arithmetic": Model(
        problems(3, 1, 9, ("+", "-", "x"), precedence=True), recipe="grpo", template="Calculate {problem}"
    ),
    "SmolLM2-135M": Model(
        problems(2, 1, 20, ("+",), precedence=False),
        recipe="smollm2-arithmetic",
        template="What is {problem}?",
        adapters=True,
        measured=(160, 8),
    ),
}


def write_problems(file: Path, every: Sequence[Problem]) -> None:
    """The spreadsheet, the same always."""
    rows = Random(0).sample(every, ROWS)
    with file.open("w", newline="") as opened:
        writer = csv.writer(opened)
        writer.writerow(["problem", "answer"])
        writer.writerows([one.expression, one.answer] for one in rows)


def walk(page: Page, home: Path, file: Path, model: Model) -> tuple[int, dict[str, float]]:
    """What docs/own-task.md says; the number of the run that it started, and at how many seconds each step was done.

    The reward is written, with its mistakes, for the first model; the second finds it there.
    """
    began, clock = time.monotonic(), dict[str, float]()
    reward = home / "rewards" / "right.py"
    is_new = not reward.exists()

    def done(step: str) -> None:
        clock[step] = round(time.monotonic() - began, 1)
        print(f"{clock[step]:6.1f} s  {step}", flush=True)

    page.goto(f"/new-run?recipe={model.recipe}")
    _pick(page, "Task", "dataset")
    page.locator("input[type=file]").set_input_files(file)
    expect(page.get_by_text(f"{ROWS} rows · 2 columns")).to_be_visible()
    _write(page, "Template", model.template)
    if model.adapters:
        page.get_by_role("button", name="Starting settings").click()
        page.get_by_role("button", name="Use these").nth(1).click()
        expect(page.locator(".st-key-section-model")).to_contain_text("LoRA")
    done("the CSV is the task")

    if is_new:
        new_reward(home, "right", group=False).write_text(BROKEN)
    rewards = page.locator(REWARDS)
    rewards.locator("summary").click()
    expect(rewards.locator("details")).to_have_css("overflow", "visible")  # unfolded to its whole height
    _pick(page, "Kind", "python", REWARDS)
    rewards.get_by_role("button", name="correctness", exact=True).click()
    # what evaluations count as right; it rewards nothing
    _pick(page, "Extract", "last number", REWARDS, place=-1)
    _write(page, "Weight", "0", place=-1)
    if is_new:
        expect(rewards).to_contain_text("right.py, line 1: SyntaxError")
        reward.write_text(ALWAYS_0)
        expect(rewards).not_to_contain_text("SyntaxError")
    _pick(page, "Function", "right.py:reward", REWARDS)
    done("the reward is chosen")

    page.get_by_role("button", name="Sample before launch").click()
    if is_new:
        expect(page.get_by_text("is always 0: it tells no two completions apart.")).to_be_visible()
        reward.write_text(RIGHT)
        written = time.monotonic()
        expect(page.get_by_text(re.compile(r"rewards changed: the mean went from"))).to_be_visible()
        clock["scored again after"] = round(time.monotonic() - written, 1)
    else:
        expect(page.get_by_text(re.compile("of 64 completions right"))).to_be_visible()
    done("a sample is seen in the lab, and a mistake mended")

    if model.measured is None:
        page.get_by_role("button", name="Measure the data set").click()
    else:
        for label, number in zip(("Prompts", "Completions per prompt"), model.measured, strict=True):
            _write(page, label, str(number))
        page.get_by_role("button", name="Sample again").click()
    band = page.get_by_role("button", name=re.compile(r"Keep \d+ of \d+ prompts as the data"))
    expect(band).to_be_visible(timeout=MEASURING)
    band.click()
    expect(page.get_by_text(re.compile(r"The form's data are now these \d+ prompts?"))).to_be_visible()
    page.get_by_role("radio", name="Form").or_(page.get_by_role("button", name="Form", exact=True)).first.click()
    done("the data set is measured, and its band is the data")

    page.get_by_role("button", name="Start run").click()
    page.wait_for_url(re.compile(r"/run\?(.*&)?id=\d+"))
    done("the run is started")
    return int(re.findall(r"[?&]id=(\d+)", page.url)[0]), clock


def _pick(page: Page, label: str, option: str, section: str = "body", place: int = 0) -> None:
    box = page.locator(section).get_by_role("combobox", name=label).nth(place)
    for left in reversed(range(10)):  # a page that is just drawn anew closes an open list: a person opens it again
        box.click()
        try:
            page.get_by_role("option", name=option).click(timeout=2000)
            break
        except PlaywrightTimeout:
            if not left:
                raise
    expect(box).to_have_value(option)
    _settled(page)


def _write(page: Page, label: str, text: str, place: int = 0) -> None:
    field = page.get_by_label(label, exact=True).nth(place)
    field.fill(text)
    field.press("Tab")
    _settled(page)


def _settled(page: Page) -> None:
    """As a person looks before the next click: what was asked for is on its way, and then there."""
    for _ in range(2):
        page.wait_for_timeout(400)
        expect(page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")


def trained(running: Site, config: Json, seeds: Sequence[int], name: str) -> list[dict[str, Any]]:
    """A run with each seed, and what was measured."""
    results = []
    for seed in seeds:
        run = train(running.client, put(config, "budget.seed", seed), f"{name}, seed {seed}")
        results.append({"model": name, "seed": seed, **measure(running.client, run, SERIES)})
    return results


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, help="of every run, instead of the recipes' own")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--home", type=Path)
    parser.add_argument("--out", type=Path, help="also write the series as JSON")
    asked = parser.parse_args()
    home = home_in(asked.home, "own-task")
    expect.set_options(timeout=PATIENCE)
    with site(home, workers=1, dashboard=True) as running:
        results, clocks, lines = [], {}, []
        for name in asked.models:
            file = home / "problems.csv"
            write_problems(file, MODELS[name].problems)
            with chromium(running.dashboard_url) as page:
                started, clocks[name] = walk(page, home, file, MODELS[name])
            config: Json = running.client.run(started).config
            running.client.command(started, "stop")
            wait(running.client, [running.client.run(started)])
            if asked.steps is not None:
                config = put(put(config, "budget.steps", asked.steps), "optimizer.warmup_steps", 0)
            runs = trained(running, put(config, "budget.eval_samples", 4), asked.seeds, name)
            results += runs
            rates = [list(one["series"]["eval/pass@1"].values()) for one in runs]
            rise = estimate([one[-1] - one[0] for one in rates])
            assert rise is not None
            shown = ", ".join(f"{one[0]:.3f} → {one[-1]:.3f}" for one in rates)
            interval = "" if rise.low is None else f" ({rise.low:+.3f} to {rise.high:+.3f})"
            lines.append([name, shown, f"{rise.mean:+.3f}{interval}"])
    print(table(["model", "held-out pass@1, before → after, by seed", "rise, 95 % interval"], lines))
    keep(asked.out, **where(), **stack("groupscope", "torch", "transformers"), clocks=clocks, runs=results)


if __name__ == "__main__":
    main()
