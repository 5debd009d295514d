"""The five clicks of docs/inspector/README.md: from the list of runs to why a group was dead."""

import re

import pytest
import recorded
from on_page import Open, click_row, drawn
from playwright.sync_api import expect
from stack import Stack

from backend.contract.protocol import Report

pytestmark = pytest.mark.thorough


def go_on(stack: Stack) -> None:
    """A step more of the run under way, whose first group is dead."""
    run_id, claim = stack.live
    step = stack.client.steps(run_id)[-1].step + 1
    groups = [recorded.group_of(index, [1.0, 0.1, 0.0, 1.0] if index else [1.0] * 4) for index in range(60)]
    report = Report(attempt=claim.attempt, seq=step + 1, step=step, groups=groups, metrics={"reward": 0.9})
    stack.client.report(run_id, report)


def test_five_clicks_say_why_a_group_was_dead(open_page: Open, stack: Stack) -> None:
    run_id = stack.live[0]
    go_on(stack)
    newest = stack.client.steps(run_id)[-1].step
    assert stack.client.groups(run_id, step=newest, state="zero_variance", limit=1).items
    page = open_page("/")
    page.get_by_role("link", name=stack.client.run(run_id).name, exact=True).click()
    expect(page.get_by_test_id("stMetric").first).to_be_visible()
    drawn(page)
    page.get_by_role("tab", name="Groups").click()
    expect(page.get_by_text(re.compile(rf"^Step {newest} · .* dead"))).to_be_visible()
    page.locator(".st-key-show").get_by_role("radio", name="dead", exact=True).click()
    page.wait_for_url(re.compile("show=dead"))
    drawn(page)
    click_row(page, f"groups-{run_id}", 0)
    expect(page.get_by_text(re.compile(r"^Dead: all 4 scored completions got .* only the KL penalty"))).to_be_visible()
    page.get_by_role("link", name=re.compile("^This prompt: .* draws?")).click()
    expect(page.get_by_text(re.compile("Mean reward at each draw"))).to_be_visible()
