"""A person judges completions in the browser, sees whether the reward agrees, and trains a reward model on what was said."""

import json
import re
from urllib.parse import parse_qs, urlsplit

import pytest
from on_page import Open, Worker, drawn, fill
from playwright.sync_api import Page, expect
from processes import wait_until
from stack import HOSTILE, Stack

from backend.contract.groups import Group

pytestmark = pytest.mark.thorough

QUESTION = "/group?panel=which+is+better%3F&id="


def groups_of(stack: Stack, run_id: int) -> list[Group]:
    return [stack.client.group(one.id) for one in stack.client.groups(run_id, state="live", limit=200).items]


def shown(page: Page, group: Group, side: str) -> int:
    """The index of the completion that stands on a side."""
    chosen = page.locator(f".st-key-{side}-of-{group.id}").get_by_role("combobox")
    expect(chosen).to_have_value(re.compile(r"Completion \d+"))
    return int(chosen.input_value().split()[1]) - 1


def judge(page: Page, stack: Stack, group: Group) -> None:
    """Open the group and choose, by key, the one that the reward prefers."""
    page.goto(f"{QUESTION}{group.id}")
    left, right = (group.completions[shown(page, group, which)] for which in ("left", "right"))
    assert left.reward is not None
    assert right.reward is not None
    expect(page.get_by_role("button", name="This one is better")).to_have_count(2)  # the keys are theirs
    page.keyboard.press("1" if left.reward > right.reward else "2")
    wait_until(lambda: stack.client.people.choices(group.id), f"the choice in group {group.id}")
    expect(page.get_by_text("1 choice in this group")).to_be_visible()
    drawn(page)


def test_from_judging_in_the_browser_to_a_trained_reward_model(open_page: Open, stack: Stack, worker: Worker) -> None:
    page = open_page(f"/run?id={stack.first}&tab=judgement")
    page.get_by_role("button", name="Judge the newest groups").click()
    expect(page.get_by_text("The rewards are hidden here")).to_be_visible()
    for group in groups_of(stack, stack.first)[:3]:
        judge(page, stack, group)
    judged = page.url
    page.keyboard.press("n")
    page.wait_for_url(lambda url: url != judged)
    expect(page.get_by_text("0 choices in this group")).to_be_visible()
    drawn(page)

    page.get_by_role("link", name="Back to the judgement").click()
    expect(page.get_by_text("The reward agrees with people on 3 of 3 pairs")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download 3 pairs as JSONL").click()
    rows = [json.loads(line) for line in download.value.path().read_text().splitlines()]
    assert [row["how"] for row in rows] == ["choice"] * 3
    page.get_by_role("button", name="Keep as a data set").click()
    page.get_by_role("link", name="Train a reward model on these").click()

    expect(page.get_by_text(f"Filled from run {stack.first}")).to_be_visible()
    upload = stack.client.uploads()[0]
    assert upload.rows == 3
    for label, value in (("Steps", "6"), ("Pairs per step", "2")):
        fill(page, label, value)
    drawn(page)
    worker()
    page.get_by_role("button", name="Start run").click()
    page.wait_for_url(re.compile(r"/run\?(.*&)?id=\d+"))
    expect(page.locator(".st-key-run-title")).to_contain_text(re.compile("finished|failed"), timeout=120_000)
    trained = stack.client.run(int(parse_qs(urlsplit(page.url).query)["id"][0]))
    assert (trained.status, trained.progress.step) == ("finished", 6)
    assert trained.config["pairs"]["source"] == f"upload:{upload.id}"  # type: ignore[index,call-overload]
    losses = stack.client.metrics(trained.id, names=["loss"]).series["loss"].value
    assert len(losses) == 6
    assert None not in losses


def test_what_a_person_says_of_a_live_run_is_there_when_the_page_is_opened_again(open_page: Open, stack: Stack) -> None:
    group = groups_of(stack, stack.live[0])[0]
    page = open_page(f"/group?id={group.id}&apart=true")
    page.get_by_role("button", name="Bookmark", exact=True).click()
    note = page.get_by_role("textbox", name="Note")
    note.fill("<b>odd</b> *stars*")
    note.blur()
    noted = "<b>odd</b> *stars*"
    wait_until(lambda: getattr(stack.client.group(group.id).bookmark, "note", None) == noted, "the note is kept")
    drawn(page)
    up = page.locator(f".st-key-thumb-{group.completions[1].id}").get_by_role("radio", name="Thumbs up")
    up.focus()
    page.keyboard.press("Enter")
    wait_until(lambda: stack.client.group(group.id).completions[1].thumb == "up", "the thumb is kept")

    page.reload()
    expect(page.get_by_role("textbox", name="Note")).to_have_value("<b>odd</b> *stars*")
    drawn(page)
    up = page.locator(f".st-key-thumb-{group.completions[1].id}").get_by_role("radio", name="Thumbs up")
    expect(up).to_have_attribute("aria-checked", "true")
    page.get_by_role("button", name="Bookmarked").click()
    expect(page.get_by_text("Bookmark the group again to get the note back")).to_be_visible()
    drawn(page)
    up.click()
    wait_until(lambda: stack.client.group(group.id).completions[1].thumb is None, "the thumb is taken back")
    assert stack.client.group(group.id).bookmark is None, "what is done next does not bring it back"
    page.get_by_role("button", name="Bookmark", exact=True).click()
    expect(page.get_by_role("textbox", name="Note")).to_have_value("<b>odd</b> *stars*")
    page.get_by_role("button", name="Bookmarked").click()
    wait_until(lambda: stack.client.group(group.id).bookmark is None, "the bookmark is gone")


def test_choices_among_hostile_texts_can_be_skipped_made_and_undone(open_page: Open, stack: Stack) -> None:
    group = groups_of(stack, stack.hostile)[0]
    page = open_page("about:blank")
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    page.goto(f"{QUESTION}{group.id}")
    first = shown(page, group, "left"), shown(page, group, "right")
    texts = page.locator(".st-key-panel-body").get_by_test_id("stCode")
    expect(texts).to_have_count(2)
    for text, index in zip(texts.all(), first, strict=True):
        expect(text).to_contain_text(
            HOSTILE[index][-12:].replace("\x1b", "␛").replace("\x07", "␇").replace("\x9b", "⟦U+009B⟧")
        )
    page.get_by_role("button", name="Undecided").click()
    wait_until(lambda: {shown(page, group, side) for side in ("left", "right")} != set(first), "the next two")
    drawn(page)
    second = shown(page, group, "left"), shown(page, group, "right")
    page.get_by_role("button", name="This one is better").first.click()
    wait_until(lambda: stack.client.people.choices(group.id), "the choice is kept")
    made = stack.client.people.choices(group.id)[0]
    assert (made.better_index, made.worse_index) == second
    expect(page.get_by_text("1 choice in this group")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("0 choices in this group")).to_be_visible()
    assert stack.client.people.choices(group.id) == []
    assert (shown(page, group, "left"), shown(page, group, "right")) == second
    assert dialogs == []
