"""The form in a browser: what cannot work is refused where it stands, with the way out; models, scripts and files go in."""

import re
from pathlib import Path

import pytest
from on_page import Open, drawn, field, fill, rows
from playwright.sync_api import Dialog, expect

pytestmark = pytest.mark.thorough

# Each field is left some milliseconds after the one before: while Streamlit is about to take that one's value.
_ONE_AFTER_ANOTHER = """async ([fields, values, pause]) => {
  const { set } = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value")
  fields.forEach((field, place) => {
    set.call(field, values[place])
    field.dispatchEvent(new Event("input", { bubbles: true }))
  })
  for (const field of fields) {
    for (const type of ["keydown", "keypress", "keyup"])
      field.dispatchEvent(new KeyboardEvent(type, { key: "Enter", code: "Enter", keyCode: 13, bubbles: true }))
    await new Promise((done) => setTimeout(done, pause))
  }
}"""


def test_values_that_come_close_together_are_all_taken(open_page: Open) -> None:
    page = open_page("/new-run?recipe=rloo")
    panel = page.locator(".st-key-preflight")
    for place in range(8):
        group, steps = 2 + place % 7, 50 + place
        drawn(page)
        fields = [field(page, label).element_handle() for label in ("Group size", "Steps")]
        page.evaluate(_ONE_AFTER_ANOTHER, [fields, [str(group), str(steps)], 1 + 1.25 * place])
        expect(panel).to_contain_text(f"{steps} steps ·")
        expect(panel).to_contain_text(f"16 prompts × {group} completions")


@pytest.mark.parametrize("group_size", ["1", "2"])
def test_what_is_typed_while_a_message_appears_above_it_stays(open_page: Open, group_size: str) -> None:
    page = open_page("/new-run?recipe=grpo")
    field(page, "Group size").fill(group_size)
    field(page, "Group size").press("Enter")
    fill(page, "Name", "half a name", ".st-key-preflight")
    expect(page.locator(".st-key-preflight")).to_contain_text("Sampling › Group size:")
    expect(field(page, "Name", ".st-key-preflight")).to_have_value("half a name")


def test_in_a_narrow_column_a_fix_shows_the_value_that_it_would_set(open_page: Open) -> None:
    page = open_page("/new-run?recipe=grpo")
    page.set_viewport_size({"width": 1100, "height": 900})
    fill(page, "Learning rate", "1")
    words = page.get_by_role("button", name="Set learning rate to 5e-5").locator("p")
    expect(words).to_have_count(2)  # at its field, and beside the form
    for one in words.all():
        assert one.evaluate("one => one.parentElement.scrollWidth <= one.parentElement.clientWidth")


def test_a_form_that_was_changed_is_not_loaded_again_without_asking(open_page: Open) -> None:
    page = open_page("/new-run?recipe=grpo")
    asked: list[str] = []

    def answer(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.accept()

    page.on("dialog", answer)
    field(page, "Steps").click()  # a browser asks nobody who has touched nothing
    page.reload()
    drawn(page)
    assert asked == []
    field(page, "Steps").click()
    fill(page, "Steps", "55")
    expect(page.get_by_text("55 steps").first).to_be_visible()
    drawn(page)
    page.reload()
    expect(field(page, "Steps")).not_to_have_value("55")
    assert asked == ["beforeunload"]


def test_a_script_for_trl_goes_out_is_changed_and_comes_back(open_page: Open, tmp_path: Path) -> None:
    page = open_page("/new-run?recipe=grpo")
    page.get_by_role("button", name="YAML, TRL").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("radio", name="TRL script").or_(dialog.get_by_role("button", name="TRL script")).click()
    expect(dialog).to_contain_text("Trains under TRL 1.16")
    with page.expect_download() as download:
        dialog.get_by_role("button", name="Download").click()
    script = download.value.path().read_text().replace("num_generations=8", "num_generations=rows()")
    file = tmp_path / "script.py"
    file.write_text(script.replace("learning_rate=5e-05", "learning_rate=1e-06"))
    drawn(page)  # after the download, too, the dialog is drawn anew
    dialog.get_by_role("tab", name="Import").click()
    expect(dialog.get_by_role("tab", name="Import")).to_have_attribute("aria-selected", "true")
    dialog.locator("input[type=file]").set_input_files(file)
    dialog.get_by_role("button", name="Fill the form").click()
    expect(page.get_by_text("num_generations is computed in line")).to_be_visible()
    expect(field(page, "Learning rate")).to_have_value("1e-6")


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


def test_a_file_that_cannot_be_read_is_refused_and_the_next_is_sent_alone_while_the_form_is_filled_in(
    open_page: Open, tmp_path: Path
) -> None:
    file = tmp_path / "mine.csv"
    file.write_text('question,answer\n1,2\n"3,4\n')
    page = open_page("/new-run?recipe=grpo")
    task = page.get_by_test_id("stSelectbox").filter(has=page.get_by_text("Task", exact=True))
    task.get_by_role("combobox").click()
    page.get_by_role("option", name="dataset").click()
    drawn(page)
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
