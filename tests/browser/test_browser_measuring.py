"""A data set is measured in a browser, a bar shows its groups, and a band of it becomes the form's data; an edited reward scores again."""

import json
import re

import pytest
from on_page import Open, Worker, drawn, field, fill
from playwright.sync_api import Locator, Page, expect
from processes import wait_until
from stack import Stack

from backend.contract.grpo import GrpoConfig
from worker.tasks.arithmetic import problems, read_left_to_right

pytestmark = pytest.mark.thorough

EACH = 10


def rows() -> list[dict[str, str]]:
    """Problems that the built-in model always, sometimes and never gets right."""
    every = problems(3, 1, 9, ("+", "-", "x"), precedence=False)[::7]
    alike = [one for one in every if read_left_to_right(one.expression).answer == one.answer]
    differ = [one for one in every if read_left_to_right(one.expression).answer != one.answer]
    asked = [(one, str(one.answer)) for one in (*alike[:EACH], *differ[:EACH])]
    asked += [(one, "100000") for one in differ[EACH : 2 * EACH]]
    return [{"prompt": f"Calculate {one.expression}", "answer": answer} for one, answer in asked]


def opened(open_page: Open, stack: Stack, **changes: object) -> Page:
    """The form of a run with these parts, as somebody clones it, before a launch."""
    config = GrpoConfig().model_dump(mode="json") | changes
    run = stack.client.create_run(config, name="to be cloned", priority=-100)
    stack.client.command(run.id, "stop")
    return open_page(f"/new-run?clone={run.id}&part=Before+launch")


def _bars(chart: Locator) -> dict[str, int]:
    """The prompts of each bar by its success rate; none before the browser has drawn them, which is after their frame."""
    labels = chart.locator("svg.marks .mark-rect path[aria-label]").evaluate_all(
        "bars => bars.map(one => one.ariaLabel)"
    )
    found = [re.search(r"success rate in percent: ([^;]+); prompts: (\d+)", label) for label in labels]
    return {one[1]: int(one[2]) for one in found if one is not None}


def test_a_data_set_is_measured_a_bar_shows_its_groups_and_a_band_becomes_the_forms_data(
    open_page: Open, stack: Stack, worker: Worker
) -> None:
    worker()
    upload = stack.client.upload("sums.jsonl", "".join(json.dumps(row) + "\n" for row in rows()).encode())
    page = opened(open_page, stack, task={"kind": "dataset", "source": f"upload:{upload.id}", "held_out": 0.1})
    fill(page, "Completions per prompt", "8")
    page.get_by_role("button", name="Measure the data set").click()
    rates = page.locator(".st-key-before-launch-rates")
    expect(rates).to_contain_text("of 27 prompts, a click shows the groups")  # three are held out
    wait_until(lambda: sum(_bars(rates).values()) == 27, "each prompt is in a bar")
    shown = _bars(rates)
    assert shown["never"] >= EACH - 3
    never = rates.locator("svg.marks .mark-rect path[aria-label*='success rate in percent: never']").first
    drawn(page)
    never.click()
    expect(page.get_by_text(f"Never right: {shown['never']} prompts")).to_be_visible()
    group = page.locator(".st-key-before-launch-group")
    expect(group).to_contain_text(f"Group 1 of {shown['never']}")
    expect(group).to_contain_text("dead")
    page.get_by_role("button", name="Show all").click()
    expect(group).to_contain_text("of 27")

    keep = page.get_by_role("button", name=re.compile(r"Keep \d+ of 27 prompts as the data"))
    kept = int(re.findall(r"\d+", keep.inner_text())[0])
    assert 0 < kept < 27 - shown["never"] + 1
    keep.click()
    expect(page.get_by_text(re.compile(r"The form's data are now these \d+ prompts"))).to_be_visible()
    made = stack.client.uploads()[0]
    assert made.id != upload.id
    assert made.rows == kept + min(kept, 3)
    page.get_by_role("radio", name="Form").or_(page.get_by_role("button", name="Form", exact=True)).first.click()
    drawn(page)
    assert made.name == "20 to 80 % of sums.jsonl"
    expect(field(page, "Uploaded before")).to_have_value(re.compile(re.escape(made.name)))
    expect(field(page, "Prompt column")).to_have_value("prompt")


def test_an_edited_reward_scores_the_sampled_groups_again(open_page: Open, stack: Stack, worker: Worker) -> None:
    worker()
    folder = stack.site.home / "rewards"
    folder.mkdir(mode=0o755, exist_ok=True)
    file = folder / "edited.py"
    file.write_text("def reward(completion):\n    return 0.0\n")
    wait_until(lambda: any("edited.py:reward" in one.own_rewards for one in stack.client.workers()), "it is offered")
    own = {"kind": "python", "name": "own", "weight": 1.0, "function": "edited.py:reward"}
    page = opened(open_page, stack, rewards={"functions": [own]})
    page.get_by_role("button", name="Sample", exact=True).click()
    expect(page.get_by_text("own is always 0: it tells no two completions apart.")).to_be_visible()
    file.write_text("def reward(completion):\n    return float(len(completion) % 2)\n")
    expect(page.get_by_text(re.compile(r"\d+ of 64 rewards changed: the mean went from 0 to"))).to_be_visible()
    file.write_text("def reward(completion):\n    return float(len(completion) % \n")
    broken = page.get_by_text(re.compile(r"edited\.py, line 2: SyntaxError"))
    expect(broken).to_have_count(2)  # beside the start, too
    expect(page.locator(".st-key-preflight").locator(broken)).to_be_visible()
    file.write_text("def reward(completion):\n    return 1.0\n")
    expect(page.get_by_text("own is always 1.00: it tells no two completions apart.")).to_be_visible()
