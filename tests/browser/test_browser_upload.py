"""A file of one's own in a browser: sent with its progress in sight, looked at, and ready to train on."""

import re
from pathlib import Path

import pytest
from on_page import Open, drawn, rows
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.thorough


def choose_dataset(page: Page) -> None:
    task = page.get_by_test_id("stSelectbox").filter(has=page.get_by_text("Task", exact=True))
    task.get_by_role("combobox").click()
    page.get_by_role("option", name="dataset").click()
    drawn(page)


def test_a_file_that_cannot_be_read_is_refused_and_the_next_is_sent_alone_while_the_form_is_filled_in(
    open_page: Open, tmp_path: Path
) -> None:
    file = tmp_path / "mine.csv"
    file.write_text('question,answer\n1,2\n"3,4\n')
    page = open_page("/new-run?recipe=grpo")
    choose_dataset(page)
    expect(page.get_by_role("button", name="Start run")).to_be_disabled()
    page.locator("input[type=file]").set_input_files(file)
    refusal = page.locator(".st-key-section-task-dataset").get_by_test_id("stAlert")
    expect(refusal).to_contain_text("line 3: cannot be read: a quotation mark opens a cell, and nothing closes it")
    expect(page.get_by_role("button", name="Start run")).to_be_disabled()

    lines = (f'"What is {n} + {n}, and {"x" * 40}?";{2 * n};{"ab"[n % 2]}\n' for n in range(100_000))
    file.write_text("question;answer;topic\n" + "".join(lines))
    page.locator("input[type=file]").set_input_files(file)
    # which of them a look at it finds is luck: the words of each are held by the page's tests
    expect(page.get_by_text("mine.csv: ")).to_contain_text(re.compile("waiting for its turn|rows read"))
    page.get_by_role("textbox", name="System prompt").fill("Answer with a number.")
    page.get_by_role("textbox", name="System prompt").press("Control+Enter")
    counted = page.get_by_text("100,000 rows · 3 columns")
    expect(counted).to_contain_text("CSV, separated by semicolons", timeout=120_000)
    expect(page.get_by_text("rows to train on")).to_contain_text("90,000 rows to train on, 10,000 held out")
    assert rows(page, "topic")[1][1:] == ["2", "b"]
    expect(page.get_by_role("textbox", name="System prompt")).to_have_value("Answer with a number.")
    expect(page.get_by_role("button", name="Start run")).to_be_enabled()
