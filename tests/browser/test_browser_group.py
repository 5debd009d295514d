"""A group in a browser: by keyboard from completion to completion, two of them side by side, and the ways to it.

From a word, a table or its prompt, on finished and live runs.
"""

import re

import pytest
import recorded
from on_page import Open, cards, click_row, drawn, field, press, rows
from playwright.sync_api import Page, expect
from stack import Stack

pytestmark = pytest.mark.thorough


def press_and_follow(page: Page, key: str, then: str) -> None:
    """A key anywhere on the page; the address follows."""
    press(page, key)
    page.wait_for_url(re.compile(then))
    drawn(page)


def opened(page: Page) -> str:
    """The head of the completion that is opened above the cards."""
    head = page.locator("[class*='st-key-opened-'] .head")
    expect(head).to_have_count(1)
    return head.inner_text()


def texts(page: Page, part: str) -> list[str]:
    return [each.inner_text() for each in page.locator(part).all()]


def test_completions_groups_and_steps_are_a_key_apart(open_page: Open, stack: Stack) -> None:
    early, late = (
        [one.id for one in stack.client.groups(stack.first, step=step, sort="index").items] for step in (4, 5)
    )
    page = open_page(f"/group?id={early[0]}&order=by+advantage&apart=true")
    shown = cards(page, 4)
    drawn(page)
    members = stack.client.group(early[0]).completions
    ranked = sorted(members, key=lambda one: one.advantage or 0.0, reverse=True)
    for place in (0, 1):
        press_and_follow(page, "ArrowRight", f"tokens={ranked[place].index + 1}")
        expect(page.locator("[class*='st-key-opened-'] .chip")).to_have_text(f"A {shown[place].advantage}")
    press_and_follow(page, "ArrowDown", f"id={early[1]}")
    expect(page.get_by_text("Group 2 of 3")).to_be_visible()
    press_and_follow(page, "]", f"id={late[1]}")
    expect(page.get_by_role("link", name="Step 5")).to_be_visible()
    press_and_follow(page, "[", f"id={early[1]}")
    press_and_follow(page, "ArrowUp", f"id={early[0]}")
    head = opened(page)
    again = open_page(page.url)
    expect(again.get_by_title("advantage", exact=True)).to_have_count(4)  # the opened one, above the others
    assert opened(again) == head


def test_best_and_worst_stand_side_by_side_with_what_differs(open_page: Open, stack: Stack) -> None:
    live = stack.client.groups(stack.first, state="live").items[0]
    page = open_page(f"/group?id={live.id}&apart=true")
    cards(page, 4)
    page.get_by_role("button", name="difference").or_(page.get_by_role("radio", name="difference")).first.click()
    sides = page.locator(".two-sides .model-text")
    expect(sides).to_have_count(2)
    drawn(page)
    by_index = {one.index + 1: one.text for one in stack.client.group(live.id).completions}
    marked = {mark: int(text) for text, mark in (head.split(" · ") for head in texts(page, ".place") if "·" in head)}
    assert texts(page, ".two-sides .model-text") == [by_index[marked["best"]], by_index[marked["worst"]]]
    assert page.locator(".two-sides mark").count() > 0
    other = next(number for number in by_index if number not in marked.values())
    page.locator("[class*='st-key-card-']").nth(other - 1).get_by_role("button", name="diff with").click()
    page.wait_for_url(re.compile(rf"diff={other}(,|%2C){marked['best']}"))
    expect(sides.first).to_have_text(by_index[other])
    again = open_page(page.url)
    expect(again.locator(".two-sides .model-text").first).to_have_text(by_index[other])


def test_a_reader_of_a_live_runs_group_is_left_alone_and_gets_the_next_step(open_page: Open, stack: Stack) -> None:
    run_id, _ = stack.live
    newest = stack.client.steps(run_id)[-1].step
    groups = [one.id for one in stack.client.groups(run_id, step=newest, sort="index").items]
    text = " ".join(f"word{place}" for place in range(400))
    page = open_page(f"/group?id={groups[0]}&diff=1,2&apart=true")
    cards(page, 4)
    forth = page.locator(".st-key-step-forth button").first
    expect(forth).to_be_disabled()
    page.get_by_role("button", name="What the model read").click()
    read = page.get_by_text("<|user|>")
    expect(read).to_be_visible()
    stack.go_on(recorded.group_of(0, [1.0, 0.1, 0.0, 1.0], texts=[text] * 4))
    expect(forth).to_be_enabled()
    expect(read).to_be_visible()
    assert f"id={groups[0]}" in page.url
    page.keyboard.press("Escape")
    expect(read).to_be_hidden()
    press(page, "]")
    expect(page.get_by_role("link", name=f"Step {newest + 1}")).to_be_visible()
    fold = page.locator("[class*='st-key-card-'] .model-text").first
    expect(fold).to_contain_text("word0 ", use_inner_text=True)
    drawn(page)
    expect(fold).not_to_contain_text("word200 ", use_inner_text=True)
    fold.locator("summary").click()
    expect(fold).to_contain_text("word200 ", use_inner_text=True)


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
    [drawn_before] = stack.client.groups_of_prompt(prompt_id=prompt.prompt_id, runs=[run_id], limit=1).items
    group = recorded.group_of(drawn_before.index, [1.0, 0.0, 0.0, 0.1])
    assert group.prompt_id == prompt.prompt_id
    recorded.report(stack.client, run_id, claim.attempt, step, [group])
    expect(page.get_by_text(f"{known + 1} draws")).to_be_visible()
