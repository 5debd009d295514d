"""Every view has an address that somebody else can open."""

import re
from urllib.parse import urlsplit

import pytest
from on_page import Open, drawn, rows
from playwright.sync_api import Browser, Page, WebSocketRoute, expect
from stack import Stack

SCREENS = (
    "/",
    "/run?id={run}",
    "/new-run",
    "/compare",
    "/group?id={group}",
    "/playground",
    "/workers",
    "/prompt?prompt={prompt}&runs={run}",
)


def test_whatever_page_is_opened_every_request_is_answered(browser: Browser, stack: Stack) -> None:
    group = stack.client.groups(stack.first).items[0]
    page = browser.new_page()
    failed: list[str] = []
    page.on("response", lambda answer: failed.append(f"{answer.status} {answer.url}") if answer.status >= 400 else None)
    page.on("console", lambda line: failed.append(line.text) if line.type == "error" else None)
    for screen in SCREENS:
        page.goto(stack.url + screen.format(run=stack.first, group=group.id, prompt=group.prompt_id))
        expect(page.locator(".st-key-pulse")).to_contain_text("worker")
        drawn(page)
        assert failed == [], screen
    page.close()


@pytest.mark.thorough
def test_a_tab_of_a_run_a_step_with_its_filters_and_a_group_reopen_from_their_addresses(
    open_page: Open, stack: Stack
) -> None:
    page = open_page(f"/run?id={stack.first}")
    for tab in ("Configuration", "Log", "Checkpoints", "Groups"):
        page.get_by_role("tab", name=tab).click()
        page.wait_for_url(re.compile(f"tab={tab.lower()}"))
        drawn(page)
    page.locator(".st-key-step-back button").first.click()
    expect(page.get_by_text(re.compile("^Step 4 ·"))).to_be_visible()
    page.locator(".st-key-show").get_by_text("live", exact=True).click()
    page.wait_for_url(re.compile("show=live"))
    live = stack.client.groups(stack.first, step=4, state="live").items
    assert 0 < len(live) < 3
    shown = rows(page, "best ends with", len(live))
    again = open_page(page.url)
    expect(again.get_by_role("tab", name="Groups")).to_have_attribute("aria-selected", "true")
    expect(again.get_by_text(re.compile("^Step 4 ·"))).to_be_visible()
    assert rows(again, "best ends with", len(live)) == shown
    group = stack.client.groups(stack.first, step=4).items[0]
    again.goto(f"/group?id={group.id}")
    again.get_by_role("button", name="Next group").click()
    expect(again.get_by_text("Group 2 of 3")).to_be_visible()
    again.reload()
    expect(again.get_by_text("Group 2 of 3")).to_be_visible()


class SlowLine:
    """Holds back what the dashboard sends to the page, which has yet to be opened, from `hold` to `release`."""

    def __init__(self, page: Page) -> None:
        self._page = page
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

    def answered(self) -> None:
        """Wait until something is held back, and nothing has come since."""
        assert self._held is not None
        known = 0
        while not self._held or known < len(self._held):
            known = len(self._held)
            self._page.wait_for_timeout(200)

    def release(self) -> None:
        held, self._held = self._held or [], None
        for browser, message in held:
            browser.send(message)


@pytest.mark.thorough
def test_two_clicks_in_a_row_are_both_kept_although_the_second_comes_before_the_answer_to_the_first(
    open_page: Open, stack: Stack
) -> None:
    page = open_page("about:blank")
    line = SlowLine(page)
    page.goto(f"/run?id={stack.first}&tab=groups")
    expect(page.get_by_text(re.compile("^Step 5 ·"))).to_be_visible()
    drawn(page)
    line.hold()
    page.locator(".st-key-step-back button").first.click()
    line.answered()
    page.locator(".st-key-show").get_by_text("live", exact=True).click()
    line.answered()
    line.release()
    expect(page.get_by_text(re.compile("^Step 4 ·"))).to_be_visible()
    drawn(page)
    assert "show=live" in page.url
    assert "step=4" in page.url
    expect(page.get_by_role("switch", name="Follow the newest")).not_to_be_checked()


@pytest.mark.thorough
def test_what_a_page_keeps_in_its_address_does_not_follow_to_the_next_page(open_page: Open, stack: Stack) -> None:
    run_id = stack.first
    for start, link, end in (
        (f"/compare?runs={run_id},{stack.second}&view=Settings", "New run", "/new-run"),
        (f"/run?id={run_id}&tab=groups&search=Calculate", "Runs", "/"),
    ):
        page = open_page(start)
        expect(page.get_by_role("link", name=link, exact=True).first).to_be_visible()
        page.get_by_role("link", name=link, exact=True).first.click()
        page.wait_for_url(re.compile(f"[^/]/?{end}(\\?|$)"))
        expect(page.get_by_role("button", name="YAML").or_(page.get_by_placeholder("search names"))).to_be_visible()
        drawn(page)
        assert urlsplit(page.url)[2:4] == (end, "")
