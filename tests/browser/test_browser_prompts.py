"""From a prompt to its draws, and from a word to the completions that hold it, on finished and live runs; and back again."""

import re

import pytest
import recorded
from on_page import Open, click_row, drawn, field, rows
from playwright.sync_api import Page, expect
from stack import Stack

from backend.contract.protocol import Report

pytestmark = pytest.mark.thorough


def search(page: Page, words: str) -> None:
    """Type, and wait for what is found: it is searched as soon as somebody pauses."""
    field(page, "Search in completions").fill(words)
    page.wait_for_url(re.compile(f"find={words}"))
    drawn(page)


def test_a_word_leads_to_its_group_and_back_to_the_search(open_page: Open, stack: Stack) -> None:
    run_id = stack.live[0]
    page = open_page(f"/run?id={run_id}&tab=search")
    assert stack.client.completions(run_id, search="answer", limit=1).items
    field(page, "Search in completions").fill("answer")
    page.wait_for_url(re.compile("find=answer"))  # it is searched as soon as somebody pauses
    drawn(page)
    click_row(page, f"found-{run_id}", 0)
    page.wait_for_url(re.compile(r"/group\?.*tokens=\d+"))
    expect(page.locator("[class*='st-key-opened-']").first).to_be_visible()
    page.go_back()
    expect(field(page, "Search in completions")).to_have_value("answer")
    assert len(rows(page, "completion")) > 1


def test_a_filtered_table_leads_to_a_group_and_is_filtered_still(open_page: Open, stack: Stack) -> None:
    run_id = stack.first
    step = stack.client.groups(run_id, state="live", limit=1).items[0].step
    live = stack.client.groups(run_id, step=step, state="live", limit=200).items
    page = open_page(f"/run?id={run_id}&tab=groups&step={step}&show=live")
    shown = rows(page, "best ends with")
    assert 0 < len(shown) <= len(live)
    click_row(page, f"groups-{run_id}", 0)
    page.wait_for_url(re.compile(rf"/group\?.*\bid={live[0].id}\b"))
    expect(page.get_by_text(f"Group {live[0].index + 1} of")).to_be_visible()
    page.go_back()
    expect(page.locator(".st-key-show").get_by_role("radio", name="live", exact=True)).to_be_checked()
    assert rows(page, "best ends with") == shown


def test_a_prompts_draws_grow_while_the_run_goes_on(open_page: Open, stack: Stack) -> None:
    run_id, claim = stack.live
    step = stack.client.run(run_id).progress.step
    prompt = stack.client.prompts(run_id, limit=1).items[0]
    page = open_page(f"/prompt?prompt={prompt.prompt_id}&runs={run_id}")
    known = len(stack.client.groups_of_prompt(prompt_id=prompt.prompt_id, runs=[run_id], limit=200).items)
    expect(page.get_by_text(f"{known} draws")).to_be_visible()
    page.get_by_label("One draw").click()
    expect(page.get_by_text("Two draws compared")).to_be_visible()
    page.keyboard.press("Escape")
    index = next(
        group.index for group in stack.client.groups_of_prompt(prompt_id=prompt.prompt_id, runs=[run_id], limit=1).items
    )
    group = recorded.group_of(index, [1.0, 0.0, 0.0, 0.1])
    assert group.prompt_id == prompt.prompt_id
    stack.client.report(
        run_id, Report(attempt=claim.attempt, seq=500 + step, step=step, groups=[group], metrics={"reward": 0.5})
    )
    expect(page.get_by_text(f"{known + 1} draws")).to_be_visible()
