"""What others wrote, and what went wrong: shown as it is, and run by nobody."""

from collections.abc import Callable

import pytest
from on_page import cards, unfold
from playwright.sync_api import Page, expect
from stack import IMAGE, MARKDOWN, SCRIPT, Stack

pytestmark = pytest.mark.slow


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
    unfold(failure)
    expect(failure.get_by_text("Traceback: the verifier gave up")).to_be_visible()
    expect(page.get_by_role("button", name="Retry").first).to_be_visible()
