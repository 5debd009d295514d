"""Hostile texts wherever a text can stand: every view shows them as text, and every export brings them back."""

import json
import re
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from urllib.parse import quote, urlsplit

import hostile
import pyarrow.parquet as pq
import pytest
from on_page import drawn
from playwright.sync_api import Browser, Page, expect
from stack import Stack

from backend.contract.groups import Group

pytestmark = pytest.mark.slow

# All that a page shows, in shadow roots too, and all that it says to a screen reader; not what a person types into.
SHOWN = """() => {
  const found = [document.title];
  const walk = (node) => {
    if (node.nodeType === Node.TEXT_NODE) found.push(node.data);
    if (node.nodeType === Node.ELEMENT_NODE) {
      if (["STYLE", "SCRIPT", "TEXTAREA"].includes(node.tagName)) return;
      for (const name of ["title", "aria-label", "alt", "placeholder"]) found.push(node.getAttribute(name) ?? "");
      if (node.shadowRoot) walk(node.shadowRoot);
    }
    node.childNodes.forEach(walk);
  };
  walk(document.documentElement);
  return found.join("\\u0001");
}"""
MADE = "[onerror], [src*='//evil.example'], [href*='//evil.example'], [href^='javascript'], .katex"
COMMANDS = re.compile(r"[\x00\x02-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class Watch:
    """What a page did that no text may make it do."""

    def __init__(self, page: Page, home: str) -> None:
        self.page, self.home = page, urlsplit(home).netloc
        self.done: list[str] = []
        page.on("dialog", lambda dialog: (self.done.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on("pageerror", lambda error: self.done.append(f"error {error}"))
        page.on("console", lambda line: self.done.append(line.text) if line.type == "error" else None)
        page.on("request", lambda request: self._note(request.url))

    def _note(self, url: str) -> None:
        if not url.startswith(("data:", "blob:", "file:")) and urlsplit(url).netloc != self.home:
            self.done.append(f"request {url}")

    def problems(self) -> list[str]:
        """What is not text on the page, and what happened."""
        shown = self.page.evaluate(SHOWN)
        found = [repr(shown[max(0, one.start() - 40) : one.end() + 40]) for one in COMMANDS.finditer(shown)][:3]
        found += [f"made: {one.evaluate('made => made.outerHTML')}" for one in self.page.locator(MADE).all()]
        found += ["an icon of a text's"] if re.search(r"\x01skull\x01", shown) else []
        found += ["a script ran"] if self.page.evaluate("window.ran") else []
        # the browser itself notes files that Streamlit looks for below every address
        found += [line for line in self.done if "status of 404" not in line]
        self.done.clear()
        return found


@pytest.fixture
def watch(open_page: Callable[[str], Page], stack: Stack) -> Watch:
    return Watch(open_page("about:blank"), stack.url)


def views(run_id: int, group: Group, first: int) -> Iterator[tuple[str, str]]:
    """Every view's address, and a piece of hostile text that stands in it."""
    run, page = f"/run?id={run_id}", f"/group?id={group.id}"
    prompt = f"/prompt?prompt={quote(group.prompt_id)}"
    yield "/", "<img src="
    for tab in ("overview", "groups", "prompts", "health", "judgement", "configuration", "checkpoints"):
        yield f"{run}&tab={tab}", "<img src="
    yield f"{run}&tab=log", "window.ran='script'"
    yield f"{run}&tab=search&find=bold", "line 0 <b>bold</b>"
    yield f"{page}&full=true", "w" * 5_000
    yield f"{page}&layout=stacked&visible=true", ":red[alarm]"
    yield f"{page}&layout=table&tokens=2", "␛"
    yield f"{page}&diff=1,2", ":material/skull:"
    yield f"{page}&panel=which+is+better%3F", "<img src="
    yield f"{page}&wi_open=true", "The whole step"
    yield f"{prompt}&runs={run_id}", ":red[alarm]"
    yield f"{prompt}&runs={run_id},{first}", ":red[alarm]"
    for view in ("Curves", "Settings", "Distributions", "Prompts"):
        yield f"/compare?runs={run_id},{first}&view={view}", "<img src="
    yield f"/playground?group={group.id}", "<script>"
    yield f"/new-run?clone={run_id}", "Start run"
    yield "/workers", "recorder"


def test_every_view_shows_hostile_texts_as_text(watch: Watch, stack: Stack) -> None:
    group = stack.client.group(stack.client.groups(stack.everything, step=2).items[0].id)
    page = watch.page
    problems = {}
    for address, words in views(stack.everything, group, stack.first):
        page.goto(stack.url + address)
        expect(page.get_by_text(words).first, address).to_be_attached()
        drawn(page)
        problems[address] = watch.problems()
    assert {address: found for address, found in problems.items() if found} == {}


def test_a_report_of_hostile_texts_is_a_page_of_text(browser: Browser, stack: Stack, tmp_path: Path) -> None:
    from dashboard.report.gather import gather
    from dashboard.report.page import report

    file = tmp_path / "report.html"
    file.write_text(report(gather(stack.client, stack.everything)), encoding="utf-8")
    page = browser.new_page()
    watch = Watch(page, "")
    page.goto(file.as_uri())
    expect(page.locator("article.group")).not_to_have_count(0)
    for words in (
        hostile.SCRIPT,
        hostile.STREAMLIT,
        hostile.MARKDOWN,
        "w" * 300,
        "␛[2J␛[31mred",
        "⟦RLO⟧txet desrever",
    ):
        assert words in page.locator("body").evaluate("body => body.textContent")
    assert watch.problems() == []
    expect(page.locator("script, img, iframe, object, embed, link")).to_have_count(0)
    page.close()


def test_every_export_brings_hostile_texts_back(stack: Stack) -> None:
    texts = {hostile.stored(text) for text in hostile.TEXTS[2:]}
    client, run_id = stack.client, stack.everything
    lines = [json.loads(line) for line in b"".join(client.export(run_id)).splitlines()]
    groups = [line["group"] for line in lines if line["kind"] == "group"]
    assert texts <= {one["text"] for group in groups for one in group["completions"]}
    assert {group["answer"] for group in groups} == {hostile.stored(hostile.SHORT)}
    assert lines[0]["run"]["name"] == hostile.stored(hostile.NAME)
    assert lines[0]["run"]["tags"] == hostile.TAGS
    rows = pq.read_table(BytesIO(b"".join(client.export_table(run_id, "groups")))).to_pylist()
    assert texts <= {row["text"] for row in rows}
    assert {row["prompt"] for row in rows} == {hostile.stored(hostile.SHORT)}

    group = client.group(groups[0]["id"])
    best, worst = (
        next(one for one in group.completions if one.text == hostile.stored(text))
        for text in (hostile.CONTROLS, hostile.LINES)
    )
    client.people.choose(group.id, better=best.id, worse=worst.id)
    pair = json.loads(b"".join(client.people.preferences(run_id)).splitlines()[0])
    assert [pair[side][0]["content"] for side in ("chosen", "rejected")] == [best.text, worst.text]
