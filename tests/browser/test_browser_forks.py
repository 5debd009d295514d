"""A run is forked from its charts: the form, the new run with its family, and the comparison in which the trunk is drawn once."""

import re

import pytest
from on_page import Open, Worker, field, lines, points, unfold
from playwright.sync_api import expect
from processes import tiny_run, wait_until
from stack import Stack

from backend.contract.records import Run

pytestmark = pytest.mark.thorough

STEPS, AT = 8, 4


@pytest.fixture(scope="module")
def parent(stack: Stack, worker: Worker) -> Run:
    """A finished run with two checkpoints; what is forked off it leaves it as it is."""
    worker()
    run = stack.client.create_run(tiny_run(STEPS, every=AT), name="the trunk")
    assert stack.site.wait_for_end(run.id).status == "finished"
    return run


def test_from_a_chart_to_the_comparison_of_a_fork_with_its_parent(open_page: Open, stack: Stack, parent: Run) -> None:
    page = open_page(f"/run?id={parent.id}")
    page.get_by_role("button", name="Fork here").click()
    page.get_by_role("link", name=f"After step {AT}").first.click()
    page.wait_for_url(re.compile(rf"fork={parent.id}%40{AT}|fork={parent.id}@{AT}"))
    expect(page.get_by_text(f"Fork of run {parent.id} at step {AT}").first).to_be_visible()
    rate = field(page, "Learning rate")
    rate.fill("0.002")
    rate.press("Enter")
    expect(page.get_by_text("full training at 0.002").first).to_be_visible()  # the form has taken it
    page.get_by_role("button", name="Start run").click()
    page.wait_for_url(re.compile(rf"/run\?id=(?!{parent.id}$)\d+"))
    [fork] = stack.client.runs(forked_from=parent.id).items
    ended = stack.site.wait_for_end(fork.id)
    assert (ended.status, ended.forked_at, ended.config["optimizer"]["learning_rate"]) == ("finished", AT, 0.002)  # type: ignore[index,call-overload]

    unfold(page.get_by_test_id("stExpander").filter(has_text=f"Fork of run {parent.id} at step {AT}"))
    page.get_by_role("link", name="Compare these").click()
    page.wait_for_url(re.compile("/compare"))
    expect(page.get_by_text(f"are the same up to step {AT}, which is drawn once")).to_be_visible()
    chart = page.locator(".st-key-compare-1")
    for label, count in (("the trunk #", STEPS), ("from step", STEPS - AT + 1)):
        line = lines(chart).and_(page.locator(f"[aria-label*='{label}']")).last
        wait_until(lambda line=line, count=count: points(line) == count, f"{label} has its points")  # type: ignore[misc]


def test_a_fork_between_two_checkpoints_is_asked_for_by_its_step(open_page: Open, parent: Run) -> None:
    page = open_page(f"/run?id={parent.id}")
    page.get_by_role("button", name="Fork here").click()
    step = page.get_by_role("spinbutton", name="After another step")
    step.fill("6")
    step.press("Enter")
    page.get_by_role("link", name="Fork after step 6").click()
    expect(page.get_by_text(f"Fork of run {parent.id} at step 6").first).to_be_visible()
    steps = field(page, "Steps")
    steps.fill("6")
    steps.press("Enter")
    expect(page.get_by_text("the fork begins after 6 steps; let it have more").first).to_be_visible()
    expect(page.get_by_role("button", name="Start run")).to_be_disabled()
    steps.fill("9")
    steps.press("Enter")
    expect(page.get_by_role("button", name="Start run")).to_be_enabled()
