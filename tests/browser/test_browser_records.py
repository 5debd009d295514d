"""What others wrote, and what went wrong: shown as it is, and run by nobody."""

from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from on_page import cards, settled
from playwright.sync_api import Dialog, Page, Request, expect
from stack import IMAGE, MARKDOWN, SCRIPT, Stack

pytestmark = pytest.mark.slow


def test_hostile_completions_are_text_and_nothing_more(open_page: Callable[[str], Page], stack: Stack) -> None:
    page = open_page("about:blank")
    asked: set[str] = set()
    dialogs: list[str] = []

    def note_request(request: Request) -> None:
        if not request.url.startswith(("data:", "blob:")):
            asked.add(urlsplit(request.url).netloc)

    def note_dialog(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("request", note_request)
    page.on("dialog", note_dialog)
    group = stack.client.groups(stack.hostile).items[0]
    for address, words in (
        (f"/group?id={group.id}", IMAGE),  # the prompt
        (f"/run?id={stack.hostile}&tab=groups", SCRIPT),  # the run's name
        ("/", SCRIPT),
        (f"/compare?runs={stack.hostile},{stack.first}", SCRIPT),
    ):
        page.goto(address)
        expect(page.get_by_text(words).first).to_be_visible()
        settled(page)
        for carrier in ("img[onerror]", "[src*='evil.example']", "[href*='evil.example']", "[href^='javascript']"):
            expect(page.locator(carrier)).to_have_count(0)
    assert asked == {urlsplit(stack.url).netloc}
    assert dialogs == []


def test_hostile_completions_are_shown_letter_by_letter(open_page: Callable[[str], Page], stack: Stack) -> None:
    group = stack.client.groups(stack.hostile).items[0]
    page = open_page(f"/group?id={group.id}")
    cards(page, 4)
    texts = [card.locator(".model-text").first.inner_text() for card in page.locator("[class*='st-key-card-']").all()]
    assert texts[:3] == [SCRIPT, IMAGE, MARKDOWN]
    assert texts[3].startswith("␛[2J␛[31mred␛[0m ␛]8;;http://evil.example␇link")


def test_a_failed_runs_page_says_why_and_what_to_do(open_page: Callable[[str], Page], stack: Stack) -> None:
    page = open_page(f"/run?id={stack.failed}")
    failure = page.locator(".st-key-failure")
    expect(failure).to_contain_text("30 of 128 completions (23 %) could not be scored by 'exact'.")
    expect(failure).to_contain_text("Open the unscored groups to see each error")
    failure.locator("summary").click()
    expect(failure.get_by_text("Traceback: the verifier gave up")).to_be_visible()
    expect(page.get_by_role("button", name="Retry").first).to_be_visible()
