"""What a person's own browser brings: the screen of a phone, and a time zone."""

from collections.abc import Iterator
from zoneinfo import ZoneInfo

import chromium
import pytest
from on_page import drawn
from playwright.sync_api import Browser, Page, expect
from stack import Stack

TOKYO = ZoneInfo("Asia/Tokyo")
pytestmark = pytest.mark.thorough


@pytest.fixture
def phone(browser: Browser, stack: Stack) -> Iterator[Page]:
    """A phone in Tokyo."""
    screen = {"width": 390, "height": 844}
    context = browser.new_context(viewport=screen, timezone_id=TOKYO.key, base_url=stack.url)  # type: ignore[arg-type]
    context.set_default_timeout(chromium.PATIENCE)
    yield context.new_page()
    context.close()


def test_on_a_phone_the_figures_of_a_run_leave_its_tabs_on_the_screen(phone: Page, stack: Stack) -> None:
    for run_id in (stack.first, stack.live[0]):
        phone.goto(f"/run?id={run_id}")
        drawn(phone)
        expect(phone.get_by_test_id("stMetric")).to_have_count(5)
        tab = phone.get_by_role("tab", name="Overview").bounding_box()
        assert tab is not None
        assert tab["y"] + tab["height"] <= 844 * 2 / 3  # what it opens has a third of the screen, then
        assert phone.evaluate("document.documentElement.scrollWidth") <= 390


def test_times_are_of_the_zone_in_which_the_browser_is_and_name_it(phone: Page, stack: Stack) -> None:
    phone.goto(f"/run?id={stack.first}&tab=log")
    expect(phone.get_by_text("Times are in the zone Asia/Tokyo.")).to_be_visible()
    [first, *_] = stack.client.logs(stack.first).items
    expect(phone.get_by_text(f"{first.created_at.astimezone(TOKYO):%m-%d %H:%M:%S}").first).to_be_attached()
    phone.goto("/workers")
    expect(phone.get_by_text("in your time zone")).to_be_visible()
    drawn(phone)
    since = [one.since.astimezone(TOKYO) for one in stack.client.worker_use()]
    hours = {hour % 24 for one in since for hour in range(one.hour - 1, one.hour + 2)}
    labels = phone.locator("svg.marks .role-axis-label text").all_text_contents()
    times = [label for label in labels if ":" in label]
    assert times
    assert {int(label.partition(":")[0]) for label in times} <= hours
