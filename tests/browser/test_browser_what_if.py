"""The what-if in a browser: numbers that change on the spot, addresses that bring them back, and a run that goes on beneath."""

import re

import pytest
from on_page import Open, drawn, field, metric, rows
from playwright.sync_api import Locator, Page, expect
from stack import Stack

pytestmark = pytest.mark.thorough

ROW, LINK = 35, 45  # pixels of the list of sign changes: a row, and from its end to the link


def unfold(page: Page) -> None:
    page.get_by_text("What if: another estimator").click()
    expect(page.get_by_text("The run's own settings.")).to_be_visible()


def numbers(page: Page) -> Locator:
    """The numbers at the dots of the completions."""
    return page.locator(".st-key-what-if-change svg.marks .mark-text.role-mark text").filter(
        has_text=re.compile("[+−]|^0$")
    )


def test_other_settings_change_group_and_step_on_the_spot_and_their_address_brings_them_back(
    open_page: Open, stack: Stack
) -> None:
    group = stack.client.groups(stack.second, step=2, state="live").items[0]
    page = open_page(f"/group?id={group.id}")
    unfold(page)
    expect(numbers(page)).to_have_count(8)
    before = numbers(page).all_text_contents()
    expect(metric(page, "Sign changes")).to_have_text("0")
    drawn(page)  # what is drawn further would close the list
    page.locator(".st-key-set-wi_estimator").get_by_role("combobox").click()
    page.get_by_role("option", name="softmax").click()
    expect(page.get_by_text("these are not the run's own settings")).to_be_visible()
    expect(metric(page, "Discouraged")).to_have_text("0")
    expect(numbers(page)).to_have_text([re.compile(r"^\+")] * 8)
    after = numbers(page).all_text_contents()
    assert after != before
    drawn(page)

    again = open_page(page.url)
    expect(metric(again, "Discouraged")).to_have_text("0")
    expect(numbers(again)).to_have_text(after)
    changed = rows(again, "change")
    listed = again.locator(".st-key-what-if-flips .dvn-scroller")
    box = listed.bounding_box()
    assert box is not None
    link = {"x": box["width"] - LINK, "y": ROW + ROW // 2}
    listed.hover(position=link)
    expect(again.locator(".st-key-what-if-flips canvas").first).to_have_css("cursor", "pointer")
    with again.context.expect_page() as opened:
        listed.click(position=link)
    other = opened.value
    expect(other.get_by_text(f"Group {changed[0][0]}", exact=False).first).to_be_visible()
    expect(metric(other, "Discouraged")).to_have_text("0")

    page.get_by_role("button", name="Run's settings").click()
    expect(page.get_by_text("The run's own settings.")).to_be_visible()
    expect(numbers(page)).to_have_text(before)
    page.wait_for_url(lambda url: "wi_estimator" not in url)


def test_a_steps_what_if_stays_while_the_run_goes_on(open_page: Open, stack: Stack) -> None:
    run_id, _ = stack.live
    reported = stack.client.steps(run_id)[-1].step
    page = open_page(f"/run?id={run_id}&tab=groups&step={reported}")
    unfold(page)
    weight = field(page, "format ×")
    weight.fill("0")
    weight.press("Enter")
    expect(page.get_by_text("these are not the run's own settings")).to_be_visible()
    drawn(page)
    dead = metric(page, "Dead groups").text_content()
    expect(page.get_by_role("slider", name="Step")).to_have_attribute("max", str(stack.go_on()))
    expect(metric(page, "Dead groups")).to_have_text(dead or "")
    expect(weight).to_have_value("0")
    assert "wi_w_format=0" in page.url
