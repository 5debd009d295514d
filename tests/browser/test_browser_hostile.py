"""Hostile texts wherever a text can stand: every view shows them as text, and every export brings them back."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from urllib.parse import quote, urlsplit

import hostile
import pyarrow.parquet as pq
import pytest
import recorded
from chromium import ARGUMENTS, PATIENCE, installed
from on_page import Open, drawn, press
from playwright.sync_api import Browser, BrowserContext, Error, Page, expect
from processes import wait_until
from stack import Stack

from backend.contract.groups import Group

pytestmark = pytest.mark.thorough

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
MADE = "[onerror], [src*='//evil.example'], [href*='//evil.example'], [href^='javascript'], .katex:not([class*='st-key-rendered-'] .katex)"
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
        found += self.done
        self.done.clear()
        return found


class Outside:
    """Every machine but this one, as the browser sees it: notes what it is asked, and answers nothing."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        asked = self.asked

        class Note(BaseRequestHandler):
            def handle(self) -> None:
                asked.append(self.request.recv(4096))

        self.server = ThreadingTCPServer(("127.0.0.1", 0), Note)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def of_texts(self) -> list[bytes]:
        """What the texts name. A browser has questions of its own for its makers, which are not ours to count."""
        return [asked for asked in self.asked if b"evil.example" in asked]


@pytest.fixture(scope="module")
def outside() -> Iterator[Outside]:
    one = Outside()
    yield one
    one.server.shutdown()
    one.server.server_close()


@pytest.fixture(scope="module")
def reader(browser: Browser, outside: Outside) -> Iterator[BrowserContext]:
    """A person whose browser finds every name on the machine outside."""
    rules = f"--host-resolver-rules=MAP * 127.0.0.1:{outside.server.server_address[1]}, EXCLUDE 127.0.0.1"
    chromium = browser.browser_type.launch(executable_path=installed(), args=[*ARGUMENTS, rules])
    context = chromium.new_context(viewport={"width": 1500, "height": 1000}, locale="en-GB")
    context.set_default_timeout(PATIENCE)
    yield context
    chromium.close()


@pytest.fixture
def watch(reader: BrowserContext, stack: Stack) -> Iterator[Watch]:
    page = reader.new_page()
    yield Watch(page, stack.url)
    page.close()


def test_a_request_to_another_machine_would_be_seen(reader: BrowserContext, outside: Outside) -> None:
    page = reader.new_page()
    with suppress(Error):  # nothing is answered
        page.goto("http://evil.example/beacon.png", timeout=5_000)
    wait_until(outside.of_texts, "it was asked")
    assert outside.of_texts()[0].startswith(b"GET /beacon.png")
    outside.asked.clear()
    page.close()


def views(run_id: int, group: Group, first: int) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Every view: an address, a piece of hostile text that stands there, and what stands behind each tab of that page."""
    run, page = f"/run?id={run_id}", f"/group?id={group.id}"
    prompt = f"/prompt?prompt={quote(group.prompt_id)}"
    named = "<img src="
    yield "/", named, {}
    tabs = ("Groups", "Prompts", "Health", "Judgement", "Configuration", "Checkpoints")
    yield run, named, {**dict.fromkeys(tabs, named), "Log": "window.ran='script'"}
    yield f"{run}&tab=search&find=bold", "line 0 <b>bold</b>", {}
    yield f"{page}&full=true", "w" * 5_000, {}
    yield f"{page}&layout=stacked&visible=true", ":red[alarm]", {}
    yield f"{page}&markdown=true", "alert(", {}
    yield f"{page}&layout=table&tokens=2", "␛", {}
    yield f"{page}&diff=1,2", ":material/skull:", {}
    yield f"{page}&panel=which+is+better%3F", named, {}
    yield f"{page}&wi_open=true&wi_estimator=softmax", "All of step", {}
    yield f"{prompt}&runs={run_id},{first}", ":red[alarm]", {}
    yield f"/compare?runs={run_id},{first}", named, dict.fromkeys(("Settings", "Distributions", "Prompts"), named)
    yield f"/playground?group={group.id}", "<script>", {}
    yield f"/new-run?clone={run_id}", "Start run", {}
    yield "/workers", "recorder", {}


def test_every_view_shows_hostile_texts_as_text_and_fetches_nothing(
    watch: Watch, outside: Outside, stack: Stack
) -> None:
    group = stack.client.group(stack.client.groups(stack.everything, step=2).items[0].id)
    page = watch.page
    problems = {}
    for address, words, tabs in views(stack.everything, group, stack.first):
        page.goto(stack.url + address)
        expect(page.get_by_text(words).first, address).to_be_attached()
        drawn(page)
        problems[address] = watch.problems()
        for tab, words in tabs.items():
            page.get_by_role("tab", name=tab).click()
            expect(page.get_by_role("tab", name=tab)).to_have_attribute("aria-selected", "true")
            drawn(page)
            expect(page.get_by_text(words).first, tab).to_be_attached()
            problems[f"{address} {tab}"] = watch.problems()
    assert {address: found for address, found in problems.items() if found} == {}
    assert outside.of_texts() == []


def test_a_completion_of_megabytes_on_one_line_leaves_its_page_readable(
    watch: Watch, outside: Outside, stack: Stack
) -> None:
    run_id, claim = recorded.started(stack.client, "a long line", sampling={"engine": "vllm"}, worker=recorded.SAMPLER)
    texts = [hostile.IMAGE + "x" * (2**22 - len(hostile.IMAGE)), "a short one"]
    group = recorded.group_of(0, [1.0, 0.0], texts=texts)
    report = recorded.p.Report(attempt=claim.attempt, seq=0, step=0, groups=[group], metrics={"reward": 0.5})
    stack.client.report(run_id, report)
    recorded.finish(stack.client, run_id, claim)
    group_id = stack.client.groups(run_id).items[0].id
    for address in (f"/run?id={run_id}&tab=groups", f"/group?id={group_id}", f"/group?id={group_id}&diff=1,2"):
        watch.page.goto(stack.url + address)
        expect(watch.page.get_by_text("a short one").or_(watch.page.get_by_text("<img src=")).first).to_be_attached()
        drawn(watch.page)
        assert watch.problems() == [], address
    assert outside.of_texts() == []


TRICKS = (
    "![a][b]\n\n[b]: http://evil.example/beacon.png 'a title'\n\n[b] [c](http://evil.example) ![d](//evil.example/d.png)",
    "<a href='http://evil.example'>x</a> <img src=//evil.example/e.png> <http://evil.example/f> <svg onload=alert(1)>",
    "http&#58;//evil.example https\\://evil.example www.evil.example HTTP://evil.example me@evil.example mailto:me@evil.example",
    "$\\href{http://evil.example}{x}$ $\\includegraphics{http://evil.example/g.png}$ $\\url{http://evil.example}$ $\\htmlStyle{position:fixed}{y}$",
    ":material/skull: :red[alarm] :streamlit: &lt;script&gt; [x]&#40;http://evil.example) ![[e]](http://evil.example/h.png)",
    "```\n![i](http://evil.example/i.png)\n~~~\n```\n![j](http://evil.example/j.png)\n`![k](http://evil.example/k.png)",
)  # fmt: skip
SAID = "# A title\n\nso \\(\\frac{1}{2}\\) and\n\\[\nx^2 < y\n\\]\n**then** <think>a list[int]</think>\n\n| a | b |\n|---|---|\n| 1 | 2 |"


def test_rendered_markdown_has_mathematics_and_tables_and_neither_loads_nor_leads_anywhere(
    watch: Watch, outside: Outside, stack: Stack
) -> None:
    run_id, claim = recorded.started(stack.client, "rendered", sampling={"engine": "vllm"}, worker=recorded.SAMPLER)
    texts = [SAID, *TRICKS, *map(hostile.stored, hostile.TEXTS)]
    groups = [recorded.group_of(0, [1.0] + [0.0] * (len(texts) - 1), texts=texts), recorded.group_of(1, [1.0, 0.0])]
    report = recorded.p.Report(attempt=claim.attempt, seq=0, step=0, groups=groups, metrics={"reward": 0.5})
    stack.client.report(run_id, report)
    recorded.finish(stack.client, run_id, claim)
    first, second = (one.id for one in stack.client.groups(run_id, sort="index").items)
    page = watch.page
    page.goto(f"{stack.url}/group?id={first}")
    expect(page.get_by_text("# A title")).to_be_visible()  # plain text, unless somebody asks for more
    page.get_by_text("Markdown", exact=True).click()
    shown = page.locator("[class*='st-key-rendered-']")
    expect(shown).to_have_count(len(texts))
    drawn(page)
    said = shown.first
    for made, count in (("h1", 1), (".katex", 2), ("strong", 1), ("table", 1)):
        expect(said.locator(made)).to_have_count(count)
    assert "<think>a list[int]</think>" in said.inner_text().replace("\u2060", "")
    assert shown.locator("img, svg[onload], a[href*=':'], a[href*='//'], script, iframe").count() == 0
    assert watch.problems() == []
    page.evaluate("document.activeElement.blur()")  # a field that has the focus keeps its keys
    press(page, "ArrowDown")
    page.wait_for_url(re.compile(f"id={second}"))
    expect(shown).to_have_count(2)
    assert outside.of_texts() == []


def test_a_report_of_hostile_texts_is_a_page_of_text(
    reader: BrowserContext, outside: Outside, stack: Stack, tmp_path: Path
) -> None:
    from dashboard.downloads.report import gather, report

    file = tmp_path / "report.html"
    file.write_text(report(gather(stack.client, stack.everything)), encoding="utf-8")
    page = reader.new_page()
    watch = Watch(page, "")
    page.goto(file.as_uri())
    expect(page.locator("article.group")).not_to_have_count(0)
    for words in (hostile.SCRIPT, hostile.STREAMLIT, hostile.MARKDOWN, "w" * 300, "␛[2J␛[31mred", "⟦RLO⟧txet desrever"):
        assert words in page.locator("body").evaluate("body => body.textContent")
    assert watch.problems() == []
    expect(page.locator("script, img, iframe, object, embed, link")).to_have_count(0)
    assert outside.of_texts() == []
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


def test_no_table_offers_its_cells_as_csv_where_a_text_may_be_a_formula(open_page: Open, stack: Stack) -> None:
    """Streamlit quotes the cells of a table and leaves a leading = + - or @ as it is."""
    group = stack.client.group(stack.client.groups(stack.everything, step=2).items[0].id)
    for address, count in (
        (f"/group?id={group.id}&layout=table", 1),
        (f"/compare?runs={stack.everything},{stack.first}&view=Settings", 2),
    ):
        page = open_page(address)
        tables = page.get_by_test_id("stDataFrame")
        expect(tables).to_have_count(count)
        for table in tables.all():
            table.scroll_into_view_if_needed()
            table.hover()
            expect(page.get_by_role("button", name="Search").first).to_be_visible()  # the table's buttons are there
            expect(page.get_by_role("button", name="Download as CSV")).to_have_count(0)
