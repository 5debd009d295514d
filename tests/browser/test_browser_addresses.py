"""Every view has an address that somebody else can open."""

import re
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from on_page import drawn, field, lines, rows
from playwright.sync_api import Browser, Page, WebSocketRoute, expect
from stack import Stack

pytestmark = pytest.mark.slow

SLOW = 2500  # milliseconds until an answer


def test_every_tab_of_a_run_reopens_from_its_address(open_page: Callable[[str], Page], stack: Stack) -> None:
    run_id = stack.first
    seen = {
        "Groups": re.compile("^Step 5 ·"),
        "Configuration": re.compile("3 prompts|16 prompts"),
        "Log": re.compile("Model loaded"),
        "Checkpoints": re.compile("No checkpoint yet"),
    }
    page = open_page(f"/run?id={run_id}")
    expect(lines(page.locator(".st-key-panel-reward")).first).to_be_attached()
    for tab, words in seen.items():
        drawn(page)
        page.get_by_role("tab", name=tab).click()
        expect(page.get_by_text(words).first).to_be_visible()
        page.wait_for_url(re.compile(f"tab={tab.lower()}"))
        again = open_page(page.url)
        expect(again.get_by_role("tab", name=tab)).to_have_attribute("aria-selected", "true")
        expect(again.get_by_text(words).first).to_be_visible()


@pytest.mark.parametrize("path", ["/", "/run?id={}", "/new-run", "/compare", "/group?id=1"])
def test_whatever_page_is_opened_every_request_is_answered(stack: Stack, browser: Browser, path: str) -> None:
    page = browser.new_page()
    failed: list[str] = []
    page.on("response", lambda answer: failed.append(f"{answer.status} {answer.url}") if answer.status >= 400 else None)
    page.on("console", lambda line: failed.append(line.text) if line.type == "error" else None)
    page.goto(stack.url + path.format(stack.first))
    expect(page.locator(".st-key-pulse")).to_contain_text("worker")
    drawn(page)
    page.close()
    assert failed == []


def test_a_step_with_its_filters_and_a_group_reopen_from_their_addresses(
    open_page: Callable[[str], Page], stack: Stack
) -> None:
    page = open_page(f"/run?id={stack.first}&tab=groups")
    page.locator(".st-key-step-back button").first.click()
    expect(page.get_by_text(re.compile("^Step 4 ·"))).to_be_visible()
    page.locator(".st-key-show").get_by_text("live", exact=True).click()
    page.wait_for_url(re.compile("show=live"))
    live = stack.client.groups(stack.first, step=4, state="live").items
    assert 0 < len(live) < 3
    shown = rows(page, "best ends with", len(live))
    again = open_page(page.url)
    expect(again.get_by_text(re.compile("^Step 4 ·"))).to_be_visible()
    assert rows(again, "best ends with", len(live)) == shown
    group = stack.client.groups(stack.first, step=4).items[0]
    opened = open_page(f"/group?id={group.id}")
    expect(opened.get_by_text(group.prompt, exact=True)).to_be_visible()
    opened.get_by_role("button", name="Next group").click()
    expect(opened.get_by_text("Group 2 of 3")).to_be_visible()
    expect(open_page(opened.url).get_by_text("Group 2 of 3")).to_be_visible()


class SlowLine:
    """Holds back what the dashboard sends to the page, which has yet to be opened, from `hold` to `release`."""

    def __init__(self, page: Page) -> None:
        self._held: list[tuple[WebSocketRoute, str | bytes]] | None = None
        page.route_web_socket(re.compile("_stcore/stream"), self._connect)

    def _connect(self, browser: WebSocketRoute) -> None:
        dashboard = browser.connect_to_server()
        browser.on_message(dashboard.send)
        dashboard.on_message(lambda message: self._pass_on(browser, message))

    def _pass_on(self, browser: WebSocketRoute, message: str | bytes) -> None:
        if self._held is None:
            browser.send(message)
        else:
            self._held.append((browser, message))

    def hold(self) -> None:
        self._held = []

    def release(self) -> None:
        held, self._held = self._held or [], None
        for browser, message in held:
            browser.send(message)


def test_two_clicks_in_a_row_are_both_kept_although_the_second_comes_before_the_answer_to_the_first(
    open_page: Callable[[str], Page], stack: Stack
) -> None:
    page = open_page("about:blank")
    line = SlowLine(page)
    page.goto(f"/run?id={stack.first}&tab=groups")
    expect(page.get_by_text(re.compile("^Step 5 ·"))).to_be_visible()
    drawn(page)
    line.hold()
    page.locator(".st-key-step-back button").first.click()
    page.wait_for_timeout(SLOW)
    page.locator(".st-key-show").get_by_text("live", exact=True).click()
    page.wait_for_timeout(SLOW)
    line.release()
    expect(page.get_by_text(re.compile("^Step 4 ·"))).to_be_visible()
    drawn(page)
    assert "show=live" in page.url
    assert "step=4" in page.url
    expect(page.get_by_role("switch", name="Follow the newest")).not_to_be_checked()


def test_what_a_page_keeps_in_its_address_does_not_follow_to_the_next_page(
    open_page: Callable[[str], Page], stack: Stack
) -> None:
    run_id, group = stack.first, stack.client.groups(stack.first).items[0]
    for start, link, end in (
        (f"/compare?runs={run_id},{stack.second}&view=Settings", "New run", "/new-run"),
        (f"/group?id={group.id}&layout=table", "New run", "/new-run"),
        (f"/run?id={run_id}&tab=groups&search=Calculate", "Runs", "/"),
    ):
        page = open_page(start)
        expect(page.get_by_role("link", name=link, exact=True).first).to_be_visible()
        page.get_by_role("link", name=link, exact=True).first.click()
        page.wait_for_url(re.compile(f"[^/]/?{end}(\\?|$)"))
        expect(page.get_by_role("button", name="YAML").or_(page.get_by_placeholder("search names"))).to_be_visible()
        drawn(page)
        assert urlsplit(page.url)[2:4] == (end, "")


def test_a_comparison_and_a_clone_reopen_from_their_addresses(open_page: Callable[[str], Page], stack: Stack) -> None:
    page = open_page(f"/compare?runs={stack.first},{stack.second}&x=samples")
    for name in ("recorded one", "recorded two"):
        expect(page.locator(f".st-key-compare-0 path[aria-label*='{name}']").first).to_be_attached()
    expect(page.locator(".st-key-x [aria-checked='true']")).to_have_text("samples")
    clone = open_page(f"/new-run?clone={stack.first}")
    expect(clone.get_by_text(f"Filled from run {stack.first}")).to_be_visible()
    expect(field(clone, "Group size")).to_have_value("4")
    expect(field(clone, "Steps")).to_have_value("6")
