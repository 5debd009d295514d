"""The Playground in a browser: a textbook example, numbers that follow at once, and addresses that bring all of it back."""

import re

import pytest
from on_page import Open, drawn, field, metric
from playwright.sync_api import Locator, Page, expect
from stack import Stack

pytestmark = pytest.mark.thorough


def bars(page: Page) -> Locator:
    """The numbers at the bars of the completions."""
    return page.locator(".st-key-play-bars svg.marks .mark-text.role-mark text").filter(has_text=re.compile("[+−]|^0$"))


def readings(page: Page) -> Locator:
    return page.locator("table.play-readings tr:has(td)")


def test_the_textbook_example_is_on_the_screen(open_page: Open) -> None:
    page = open_page("/")
    page.get_by_role("link", name="Playground").click()
    expect(page.get_by_text("Calculate 2 + 2 x 6", exact=True)).to_be_visible()
    expect(field(page, "Rewards")).to_have_value("1, 1, 1, 1, 0, 0, 0, 0")
    expect(readings(page).nth(0)).to_have_text(re.compile(r"numpy.std\s*0\.5\s*0\.5\s*±1\.0"))
    expect(readings(page).nth(1)).to_have_text(re.compile(r"in TRL\s*0\.5\s*0\.53\s*±0\.94"))
    expect(readings(page).nth(2)).to_have_text(re.compile(r"Group-wise softmax\s*0\.5\s*–\s*0\.183 / 0\.067"))
    for row in readings(page).all():
        expect(row).to_be_in_viewport(ratio=1)
    expect(metric(page, "Mean (group)")).to_have_text("0.500")
    expect(bars(page)).to_have_text(["+1.00"] * 4 + ["−1.00"] * 4)
    expect(page.get_by_text("ratio = 0.9 / 0.5 = 1.8 → clipped to 1.2")).to_be_in_viewport()
    expect(page.locator(".st-key-play-objective svg.marks text").filter(has_text="+1.20")).to_be_visible()


def test_numbers_follow_at_once_and_their_address_brings_them_back(open_page: Open) -> None:
    page = open_page("/playground")
    expect(bars(page)).to_have_count(8)
    for key in ("End", "Backspace", "1"):  # no Enter: what is typed takes effect by itself
        field(page, "Rewards").press(key)
    expect(bars(page)).to_have_text(["+0.775"] * 5 + ["−1.29"] * 3)
    page.locator(".st-key-set-std").get_by_text("sample", exact=True).click()
    expect(metric(page, "Std (sample)")).to_have_text("0.518")
    expect(metric(page, "Lowest advantage")).to_have_text("−1.21")
    page.get_by_role("button", name="0.2 / 0.5").click()
    expect(page.get_by_text("ratio = 0.2 / 0.5 = 0.4 → clipped to 0.8")).to_be_visible()
    field(page, "New probability").fill("0.7")
    field(page, "New probability").press("Enter")
    expect(page.get_by_text("ratio = 0.7 / 0.5 = 1.4 → clipped to 1.2")).to_be_visible()
    drawn(page)
    again = open_page(page.url)
    expect(field(again, "Rewards")).to_have_value("1, 1, 1, 1, 0, 0, 0, 1")
    expect(field(again, "New probability")).to_have_value("0.7")
    expect(metric(again, "Lowest advantage")).to_have_text("−1.21")
    expect(again.get_by_text("ratio = 0.7 / 0.5 = 1.4 → clipped to 1.2")).to_be_visible()


def test_a_logged_group_opens_from_its_page_and_from_the_chooser(open_page: Open, stack: Stack) -> None:
    group = stack.client.groups(stack.first, state="live").items[0]
    page = open_page(f"/group?id={group.id}")
    page.get_by_role("link", name="Open in the Playground").click()
    page.wait_for_url(re.compile(f"/playground.*group={group.id}"))
    expect(page.get_by_text("These are the advantages that the run trained with")).to_be_visible()
    expect(page.get_by_text(group.prompt, exact=True)).to_be_visible()
    expect(bars(page)).to_have_count(4)
    page.get_by_role("button", name="Textbook example").click()
    expect(page.get_by_text("Calculate 2 + 2 x 6", exact=True)).to_be_visible()
    expect(bars(page)).to_have_count(8)
    drawn(page)
    page.get_by_role("button", name="Load a real group").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("Group, widest spread first")).to_be_visible()
    dialog.get_by_test_id("stBaseButton-primary").click()
    page.wait_for_url(re.compile(r"/playground\?group=\d+$"))
    expect(page.get_by_role("link", name="The group")).to_be_visible()
