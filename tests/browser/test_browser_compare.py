"""Runs side by side while one of them goes on."""

import re

import pytest
import recorded
from on_page import Open, drawn, lines, points
from playwright.sync_api import expect
from processes import wait_until
from stack import Stack

from backend.contract.protocol import Report

pytestmark = pytest.mark.thorough

PAGE = "[data-testid=stMain]"


def test_a_comparison_follows_a_live_run_and_keeps_what_was_chosen(open_page: Open, stack: Stack) -> None:
    run_id, claim = stack.live
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

    last = stack.client.steps(run_id)[-1].step
    for step in range(last + 1, last + 3):
        groups = [recorded.group_of(index, [1.0, 0.1, 0.0, 1.0]) for index in range(60)]
        report = Report(attempt=claim.attempt, seq=step + 1, step=step, groups=groups, metrics={"reward": 0.7})
        stack.client.report(run_id, report)
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
