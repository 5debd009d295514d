"""A reward model is trained on preference pairs in the browser, and a policy learns from it alone what is right."""

import re

import pytest
from on_page import Open, Worker, drawn, field, fill, open_section, start
from playwright.sync_api import Page, expect
from stack import Stack

from dashboard.components.chart import place_key

pytestmark = pytest.mark.thorough

STEPS = "20"


def finished(page: Page, stack: Stack, run_id: int) -> None:
    """Go away until the run has ended, come back, and wait for the figures, which are drawn after the title."""
    address = page.url
    page.goto("about:blank")
    stack.site.wait_for_end(run_id)
    page.goto(address)
    expect(page.locator(".st-key-run-title")).to_contain_text("finished")
    drawn(page)


def shown(page: Page, label: str) -> list[float]:
    """The first and the latest number of one of the figures at the top of a run's page."""
    figure = page.get_by_test_id("stMetric").filter(has_text=label)
    expect(figure).to_contain_text("→")
    return [float(number) for number in re.findall(r"[\d.]+(?= ?%)", figure.inner_text())]


def train_a_reward_model(page: Page, stack: Stack) -> int:
    """On pairs that the small model gives by itself; its page shows that it ranks other prompts' pairs."""
    page.get_by_role("radio", name="Preferences").or_(page.get_by_role("button", name="Preferences")).first.click()
    expect(page.locator(".st-key-recipe-reward-model")).to_be_visible()
    drawn(page)
    page.locator(".st-key-recipe-reward-model button").first.click()
    expect(field(page, "Pairs per step")).to_have_value("16")
    fill(page, "Prompts", "100")
    fill(page, "Steps", STEPS)
    open_section(page, "pairs")
    fill(page, "Held out prompts", "50")
    fill(page, "Name", "a judge of sums", ".st-key-preflight")
    expect(page.locator(".st-key-preflight")).to_contain_text("16 pairs × 20 steps = 320 pairs")
    run_id = start(page)
    finished(page, stack, run_id)
    first, last = shown(page, "Held-out pairs")
    assert first < 85 <= last
    for panel in ("loss", "accuracy", "margin", "eval/accuracy"):
        place = f".st-key-{place_key('panel', panel)}"
        expect(page.locator(f"{place} canvas, {place} svg").first).to_be_visible()
    expect(page.get_by_role("tab", name="Groups")).to_have_count(0)
    page.get_by_role("tab", name="Checkpoints").click()
    expect(page.get_by_text(f"rewards.functions.0.source: run:{run_id}@{STEPS}")).to_be_visible()
    expect(page.get_by_text("Try checkpoint")).to_have_count(0)
    expect(page.get_by_role("link", name="Start a run from it")).to_have_count(0)
    return run_id


def test_a_person_trains_a_reward_model_and_a_policy_that_it_alone_rewards(
    open_page: Open, stack: Stack, worker: Worker
) -> None:
    worker()
    page = open_page("/new-run")
    judge = train_a_reward_model(page, stack)

    page.get_by_role("link", name="Use it as a reward").first.click()
    expect(page.get_by_text(f"Filled from run {judge}")).to_be_visible()
    open_section(page, "rewards")
    expect(field(page, "Source")).to_have_value(f"run:{judge}@{STEPS}")
    for label, value in (("Prompts per step", "8"), ("Steps", STEPS), ("Learning rate", "1e-4")):
        fill(page, label, value)
    open_section(page, "budget")
    for label, value in (("Steps between evaluations", STEPS), ("Prompts per evaluation", "50")):
        fill(page, label, value)
    fill(page, "Name", "rewarded by the judge", ".st-key-preflight")
    drawn(page)
    policy = start(page)
    finished(page, stack, policy)
    before, after = shown(page, "Held-out pass@1")
    assert after >= before + 10

    functions = stack.client.run(policy).config["rewards"]["functions"]  # type: ignore[index,call-overload]
    assert {one["name"]: one["weight"] for one in functions} == {"reward-model": 1.0, "correctness": 0.0}  # type: ignore[union-attr,index,call-overload]
    functions_used = {"rewards/reward-model/mean", "rewards/correctness/mean"}
    assert functions_used <= set(stack.client.metrics(policy, names=[*functions_used]).series)
