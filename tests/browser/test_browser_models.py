"""The form's list of models in a browser: sizes, and whether they fit."""

import re
from collections.abc import Callable

import pytest
from on_page import field, fill
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.slow


def test_the_chosen_model_stays_chosen_while_its_line_follows_the_settings(open_page: Callable[[str], Page]) -> None:
    page = open_page("/new-run?recipe=grpo")
    chooser = field(page, "Model")
    chooser.click()
    page.get_by_role("option").filter(has_text="SmolLM2 135M Instruct").click()
    line = re.compile("SmolLM2 135M Instruct · comes along · 135 million parameters · .*GiB")
    expect(chooser).to_have_value(line)
    before = chooser.input_value()
    for new_tokens in ("900", "90"):
        fill(page, "Max new tokens", new_tokens)
        expect(chooser).not_to_have_value(before)
        expect(chooser).to_have_value(line)
        before = chooser.input_value()
    expect(page.locator(".st-key-section-model")).to_contain_text("smollm2-135m-instruct · all weights")
    expect(page.get_by_role("button", name="Start run")).to_be_enabled()


def test_settings_to_start_with_are_taken_with_one_click(open_page: Callable[[str], Page]) -> None:
    page = open_page("/new-run?recipe=smollm2-arithmetic")
    page.get_by_role("button", name="Starting settings").click()
    page.get_by_role("button", name="Use these").nth(1).click()
    expect(page.locator(".st-key-section-model")).to_contain_text("LoRA, rank 16")
    expect(field(page, "Learning rate")).to_have_value("1e-4")
