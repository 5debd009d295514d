"""The algorithms side by side, as a person compares them: tick recipes, queue all of it, watch means and bands appear."""

import re
import subprocess
from collections.abc import Callable

import pytest
from on_page import fill, lines, open_section, settled
from playwright.sync_api import Page, expect
from stack import Stack

pytestmark = pytest.mark.slow

RECIPES = ("grpo", "grpo-notebook")


def fill_a_tiny_form(page: Page) -> None:
    """Budgets so small that four runs take seconds."""
    for label, number in (("Prompts per step", 2), ("Group size", 4), ("Steps", 3)):
        fill(page, label, str(number))
    open_section(page, "budget")
    fill(page, "Evaluation items", "4")
    fill(page, "Evaluation samples", "1")


def test_a_sweep_is_queued_with_one_click_and_its_comparison_shows_means_and_bands(
    open_page: Callable[[str], Page], stack: Stack, worker: Callable[[], subprocess.Popen[bytes]]
) -> None:
    worker()
    page = open_page("/new-run?recipe=grpo")
    fill_a_tiny_form(page)
    page.get_by_role("link", name="Add to a sweep…").click()
    expect(page.get_by_text("Compare algorithms", exact=True)).to_be_visible()
    page.get_by_role("button", name="None", exact=True).click()
    expect(page.get_by_role("button", name="Queue runs")).to_be_visible()
    for recipe in RECIPES:
        page.locator(f".st-key-sweep-recipe-{recipe} label").first.click()
        settled(page)
    fill(page, "Seeds of each", "2")
    page.get_by_role("button", name="Queue 4 runs").click()
    page.wait_for_url(re.compile(r"/compare\?(.*&)?sweep=\d+"))
    sweep_id = int(re.search(r"sweep=(\d+)", page.url)[1])  # type: ignore[index]
    page.evaluate("window.never_reloaded = true")

    expect(page.get_by_text("4 of 4 finished")).to_be_visible(timeout=120_000)
    assert page.evaluate("window.never_reloaded")
    runs = stack.client.runs(sweep=sweep_id, limit=10).items
    assert {(run.status, run.config["sampling"]["group_size"]) for run in runs} == {("finished", 4)}  # type: ignore[index,call-overload]

    gains = page.locator(".st-key-gains")
    expect(gains.locator("svg .mark-rule line, svg .mark-rule path").first).to_be_attached()
    reward = page.locator(".st-key-compare-1")
    expect(reward.locator("svg.marks .mark-area path")).to_have_count(2)
    for recipe in RECIPES:
        expect(lines(reward).and_(page.locator(f"[aria-label*='{recipe}']")).first).to_be_attached()
    expect(page.get_by_text(re.compile(r"grpo-notebook − grpo:.*with 2 seeds"))).to_be_visible()
    table = page.locator("canvas table").filter(has=page.locator("th", has_text=re.compile(r"^gain$")))
    finals = table.locator("tbody tr").filter(has_text="Held-out pass@1")
    for place, recipe in enumerate(RECIPES):
        expect(finals.nth(place).locator("td").nth(1)).to_have_text(recipe)
        expect(finals.nth(place).locator("td").last).to_have_text("2")
