"""Runs side by side while one of them goes on; and sweeps as a person makes them, of algorithms or of any settings."""

import re

import pytest
from on_page import Open, Worker, drawn, fill, lines, open_section, points
from playwright.sync_api import Page, expect
from processes import tiny_run, wait_until
from stack import Stack

from backend.contract.records import Run
from dashboard.stored import get

pytestmark = pytest.mark.thorough

PAGE = "[data-testid=stMain]"


def test_a_comparison_follows_a_live_run_and_keeps_what_was_chosen(open_page: Open, stack: Stack) -> None:
    run_id, _ = stack.live
    page = open_page(f"/compare?runs={stack.first},{run_id}&smooth=0.0")
    chart = page.locator(".st-key-compare-1")
    line = lines(chart).and_(page.locator("[aria-label*='under way']")).first
    expect(line).to_be_attached()
    expect(lines(chart).and_(page.locator("[aria-label*='recorded one']")).first).to_be_attached()
    page.locator(".st-key-log label").click()
    page.wait_for_url("**log=true**")
    drawn(page)
    page.locator(PAGE).evaluate("part => { part.scrollTop = 120 }")
    page.evaluate("window.never_reloaded = true")
    known = points(line)

    for _ in range(2):
        stack.go_on()
    wait_until(lambda: points(line) == known + 2, "the line has the two new steps")
    assert page.evaluate("window.never_reloaded")
    assert page.locator(PAGE).evaluate("part => part.scrollTop") == 120
    expect(page.get_by_role("switch", name="Logarithmic")).to_be_checked()
    again = open_page(page.url)
    expect(again.get_by_role("switch", name="Logarithmic")).to_be_checked()
    wait_until(lambda: points(lines(again.locator(".st-key-compare-1")).last) > 0, "the chart is drawn again")


@pytest.mark.parametrize("what", ["runs", "sweep"])
def test_compare_in_the_bar_leads_from_a_comparison_to_an_empty_choice(
    open_page: Open, stack: Stack, what: str
) -> None:
    query = f"runs={stack.first},{stack.live[0]}"
    if what == "sweep":
        config = stack.client.run(stack.first).config
        made = stack.client.create_sweep("two seeds", [{"config": config}, {"config": config}])
        query = f"sweep={made.id}"
    page = open_page(f"/compare?{query}&view=Settings")
    expect(page.get_by_role("tab", name="Settings")).to_be_visible()
    drawn(page)
    page.evaluate("window.never_reloaded = true")
    page.get_by_test_id("stTopNavLink").filter(has_text="Compare").click()
    expect(page.get_by_text("Choose two runs or more")).to_be_visible()
    page.wait_for_url(re.compile(r"/compare$"))
    expect(page.get_by_role("tab", name="Settings")).to_have_count(0)
    assert page.evaluate("window.never_reloaded")
    page.go_back()
    expect(page.get_by_role("tab", name="Settings")).to_be_visible()


RECIPES = ("grpo", "grpo-notebook")


def fill_a_tiny_form(page: Page) -> None:
    """Budgets so small that four runs take seconds."""
    for label, number in (("Prompts per step", 2), ("Group size", 4), ("Steps", 3)):
        fill(page, label, str(number))
    open_section(page, "budget")
    fill(page, "Prompts per evaluation", "4")
    fill(page, "Samples per prompt in evaluations", "1")


def finished(page: Page, stack: Stack, count: int) -> list[Run]:
    """The runs of the sweep whose comparison has opened, once the page says, without being loaded anew, that all are done."""
    page.wait_for_url(re.compile(r"/compare\?(.*&)?sweep=\d+"))
    sweep_id = int(re.search(r"sweep=(\d+)", page.url)[1])  # type: ignore[index]
    page.evaluate("window.never_reloaded = true")
    expect(page.get_by_text(f"{count} of {count} finished")).to_be_visible(timeout=120_000)
    assert page.evaluate("window.never_reloaded")
    return stack.client.runs(sweep=sweep_id, limit=20).items


def test_a_sweep_is_queued_with_one_click_and_its_comparison_shows_means_and_bands(
    open_page: Open, stack: Stack, worker: Worker
) -> None:
    worker()
    page = open_page("/new-run?recipe=grpo")
    fill_a_tiny_form(page)
    page.get_by_role("link", name="Add to a sweep…").click()
    expect(page.get_by_text("New sweep", exact=True)).to_be_visible()
    page.get_by_role("button", name="None", exact=True).click()
    expect(page.get_by_role("button", name="Queue runs")).to_be_visible()
    for recipe in RECIPES:
        page.locator(f".st-key-sweep-recipe-{recipe} label").first.click()
        drawn(page)
    fill(page, "Number of seeds", "2")
    page.get_by_role("button", name="Queue 4 runs").click()
    runs = finished(page, stack, 4)
    assert {(run.status, get(run.config, "sampling.group_size")) for run in runs} == {("finished", 4)}

    gains = page.locator(".st-key-gains")
    expect(gains.locator("svg .mark-rule line, svg .mark-rule path").first).to_be_attached()
    reward = page.locator(".st-key-compare-1")
    expect(reward.locator("svg.marks .mark-area path")).to_have_count(2)
    for recipe in RECIPES:
        expect(lines(reward).and_(page.locator(f"[aria-label*='{recipe}']")).first).to_be_attached()
    expect(page.get_by_text(re.compile(r"grpo-notebook − grpo ·.*two seeds cannot tell"))).to_be_visible()
    table = page.locator("canvas table").filter(has=page.locator("th", has_text=re.compile(r"^gain$")))
    for recipe in RECIPES:
        row = table.locator("tbody tr").filter(has=page.get_by_text(recipe, exact=True))
        expect(row.locator("td").nth(1)).to_have_text("2")


def test_a_grid_over_two_settings_of_a_run_opens_from_its_address_and_leads_to_a_line_for_each_run(
    open_page: Open, stack: Stack, worker: Worker
) -> None:
    worker()
    base = stack.client.create_run(tiny_run(2), name="the base").id
    page = open_page(f"/run?id={base}")
    page.get_by_role("link", name="Sweep", exact=True).first.click()
    picker = page.get_by_role("combobox", name="Fields to sweep")
    for name in ("learning rate", "group size"):
        picker.fill(name)
        picker.press("Enter")
        drawn(page)
    picker.press("Escape")
    fill(page, "Values", "1e-5, 1e-3", within=".st-key-swept-optimizer-learning_rate")
    fill(page, "Values", "2 4", within=".st-key-swept-sampling-group_size")
    fill(page, "Number of seeds", "1")
    expect(page.get_by_role("button", name="Queue 4 runs")).to_be_enabled()

    again = open_page(page.url)
    again.get_by_role("button", name="Queue 4 runs").click()
    runs = finished(again, stack, 4)
    assert {(get(run.config, "optimizer.learning_rate"), get(run.config, "sampling.group_size")) for run in runs} == {
        (rate, size) for rate in (1e-5, 1e-3) for size in (2, 4)
    }
    assert {run.progress.total_steps for run in runs} == {2}
    chart = again.locator(".st-key-parallel svg")
    for name in ("learning_rate", "group_size"):
        expect(chart.get_by_text(name, exact=True)).to_be_attached()
    expect(chart.locator(".mark-line path[stroke-width='1.8']")).to_have_count(4)

    again.get_by_role("button", name="All sweeps").click()
    again.wait_for_url(re.compile(r"/compare$"))
    again.reload()
    drawn(again)
    name = stack.client.sweeps(limit=1).items[0].name
    again.get_by_role("button", name=name).click()
    again.wait_for_url(re.compile(r"/compare\?sweep=\d+$"))
    expect(again.get_by_text("4 of 4 finished")).to_be_visible()
    again.go_back()
    expect(again.get_by_role("button", name=name)).to_be_visible()
