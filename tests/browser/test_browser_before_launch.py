"""Before launch in a browser: a worker samples what the form says, and the form is as it was when one comes back to it."""

import re

import pytest
import recorded
from on_page import Open, Worker, cards, click_row, drawn, field, fill, start
from playwright.sync_api import expect
from processes import tiny_run, wait_until
from stack import HOSTILE, IMAGE, Stack

from backend.contract import protocol as p
from backend.contract.grpo import GrpoConfig

pytestmark = pytest.mark.thorough

PYTHON = {"kind": "python", "name": "own", "weight": 1.0, "function": "nobody_else:has_this"}


def test_a_person_samples_before_the_launch_reads_the_forecast_and_starts_the_same_form(
    open_page: Open, stack: Stack, worker: Worker
) -> None:
    worker()
    page = open_page("/new-run?recipe=rloo")
    fill(page, "Group size", "4")
    fill(page, "Steps", "55")
    panel = page.locator(".st-key-preflight")
    expect(panel).to_contain_text("× 4 completions")
    expect(panel).to_contain_text("55 steps")
    drawn(page)  # a further answer would fold the parts again
    expect(panel).to_contain_text(re.compile(r"The largest share, \d+%, goes to Python and PyTorch themselves"))
    panel.get_by_text("All parts").first.click()
    expect(panel.get_by_role("cell", name="optimizer")).to_be_visible()
    page.get_by_role("button", name="Sample before launch").click()
    forecast = page.locator(".st-key-before-launch-forecast")
    expect(forecast).to_contain_text(re.compile(r"At group size 4 (about )?\S+( than)? .*of the groups will be dead"))
    expect(forecast.locator("canvas, svg.marks").first).to_be_visible()
    expect(panel).to_contain_text(re.compile(r"measured by the rewards on 4 prompts, success rate [\d.]+"))
    # the form's estimator
    expect(page.locator(".st-key-before-launch-group")).to_contain_text("which is reward − mean of the other 15")
    first = cards(page, 16)
    assert all(0 <= float(card.reward) <= 1 for card in first)

    again = open_page(page.url)
    assert cards(again, 16) == first
    expect(again.locator(".st-key-before-launch-forecast")).to_be_visible()
    again.get_by_role("radio", name="Form").or_(again.get_by_role("button", name="Form", exact=True)).first.click()
    expect(field(again, "Steps")).to_have_value("55")
    expect(field(again, "Group size")).to_have_value("4")
    run = stack.client.run(start(again))
    stack.client.command(run.id, "stop")
    assert run.config["budget"]["steps"] == 55  # type: ignore[index,call-overload]
    assert run.config["recipe"] == "rloo"


def test_a_sample_is_drawn_between_the_steps_of_a_run_under_way(open_page: Open, stack: Stack, worker: Worker) -> None:
    worker()
    run_id = stack.client.create_run(tiny_run(2000), name="keeps the worker busy").id
    wait_until(lambda: stack.client.run(run_id).progress.step > 0, "the run trains")
    page = open_page("/new-run?recipe=grpo")
    page.get_by_role("button", name="Sample before launch").click()
    expect(page.locator(".st-key-before-launch-forecast")).to_contain_text("of the groups will be dead")
    run = stack.client.run(run_id)
    assert run.status == "running"
    wait_until(lambda: stack.client.run(run_id).progress.step > run.progress.step, "the run trains on")
    stack.client.command(run_id, "stop")


def test_a_hostile_sample_is_text_and_its_group_is_found_again_by_its_address(open_page: Open, stack: Stack) -> None:
    # No worker of this stack has the function that it names, so that nobody else takes it.
    sample = stack.client.create_run(
        {
            "kind": "sample",
            "task": {"kind": "arithmetic"},
            "group_size": 4,
            "rewards": {"functions": [PYTHON]},
            "launch": GrpoConfig().model_dump(mode="json"),
        },
        name=f"hostile {IMAGE}",
    )
    info = p.WorkerInfo(name="hostile sampler", device="cpu", store="recorded", reward_functions=[PYTHON["function"]])
    claim = recorded.claim(stack.client, sample.id, worker=info, kind="sample")
    groups = [recorded.group_of(0, [1.0] * 4), recorded.group_of(1, [1.0, None, 0.0, 0.9], texts=HOSTILE, prompt=IMAGE)]
    recorded.report(stack.client, sample.id, claim.attempt, 0, groups)
    recorded.finish(stack.client, sample.id, claim)

    page = open_page("about:blank")
    opened: list[str] = []
    page.on("dialog", lambda dialog: opened.append(dialog.message))
    page.goto(f"/new-run?part=Before+launch&sample={sample.id}")
    expect(page.get_by_text("all 4 scored completions got 1.00")).to_be_visible()
    drawn(page)
    click_row(page, f"before-launch-groups-{sample.id}", 1)
    expect(page.locator(".st-key-before-launch-group")).to_contain_text("Group 2 of 2")
    page.wait_for_url(re.compile(r"group=\d+"))
    drawn(page)
    group = open_page(page.url).locator(".st-key-before-launch-group")
    for text in (*HOSTILE[:3], IMAGE):
        expect(group.get_by_text(text).first).to_be_visible()
    expect(
        page.locator(
            ".st-key-before-launch-group img, .st-key-before-launch-group script, .st-key-before-launch-group a[href*='evil']"
        )
    ).to_have_count(0)
    assert opened == []
