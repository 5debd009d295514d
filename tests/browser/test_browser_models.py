"""The form's list of models in a browser: sizes, and whether they fit."""

import re

import pytest
from on_page import Open, field, fill
from playwright.sync_api import expect

pytestmark = pytest.mark.thorough


def test_the_chosen_model_stays_chosen_while_its_line_follows_the_settings(open_page: Open) -> None:
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
