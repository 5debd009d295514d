"""What a person reads off a page, as a test reads it: cards, tables, charts."""

import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from chromium import PATIENCE
from playwright.sync_api import Locator, Page, Position, expect
from processes import wait_until

Open = Callable[[str], Page]
"""Opens an address of the dashboard in a tab of the test's own."""
Worker = Callable[[], subprocess.Popen[bytes]]
"""Starts the one worker when it is first called."""
ROW, HEADER = 36, 36  # pixels of the table of groups
_UNFINISHED = ", ".join(
    (
        "[data-testid=stSkeleton]",
        "[data-testid=stVegaLiteChart]:not(:has(.marks))",
        "[data-testid=stDataFrame]:not(:has(canvas))",
    )
)
_STILL = """([unfinished, patience]) => new Promise((done, failed) => {
  const end = (then) => { changes.disconnect(); clearTimeout(waiting); clearTimeout(late); then() }
  const look = () => document.querySelector(unfinished) ? rest() : end(done)
  const rest = () => { clearTimeout(waiting); waiting = setTimeout(look, 300) }
  const missing = () => document.querySelector(unfinished)?.outerHTML.slice(0, 300) ?? "it changes all the time"
  const late = setTimeout(() => end(() => failed(new Error(`the page is not drawn: ${missing()}`))), patience)
  const changes = new MutationObserver(rest)
  changes.observe(document, { subtree: true, childList: true })
  let waiting = setTimeout(rest)
})"""


@dataclass(frozen=True)
class Card:
    """The head of a completion's card."""

    mark: str  # best, worst or nothing
    reward: str
    advantage: str


def settled(page: Page) -> None:
    """Wait until the server has nothing more to send for what it was asked; what was done a moment ago may not have reached it."""
    expect(page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")


def drawn(page: Page) -> None:
    """Wait, further, until the browser has drawn what was sent: a moment without a new element, and with nothing to come.

    The first element of its kind waits for its code, and charts and tables for their drawing. What stands below moves then, and
    a press on it is lost if it moves between mouse down and mouse up.
    """
    settled(page)
    page.evaluate(_STILL, [_UNFINISHED, PATIENCE])


def press(page: Page, key: str) -> None:
    """A key anywhere on the page, once the page listens for it."""
    expect(page.locator("body")).to_have_attribute("data-keys", re.compile(rf"(^| ){re.escape(key)}( |$)"))
    page.keyboard.press(key)


def field(page: Page, label: str, within: str = "body") -> Locator:
    """A field of the form; while the page is drawn anew the old one lingers, marked as stale."""
    fresh = page.locator(f"{within} [data-testid='stElementContainer'][data-stale='false']")
    return fresh.get_by_label(label, exact=True)


def fill(page: Page, label: str, value: str, within: str = "body") -> None:
    """Type into a field of the form and leave it; what depends on it is up to date afterwards."""
    settled(page)
    field(page, label, within).fill(value)
    field(page, label, within).press("Enter")
    settled(page)
    expect(field(page, label, within)).to_have_value(value)


def metric(page: Page, label: str) -> Locator:
    return page.get_by_test_id("stMetric").filter(has_text=label).get_by_test_id("stMetricValue")


def unfold(section: Locator) -> None:
    """Unfold a section, to its whole height: while it unfolds, and scrolled to before, what is in it moves away under the mouse."""
    section.locator("summary").click()
    expect(section.locator("details")).to_have_css("overflow", "visible")


def open_section(page: Page, name: str) -> None:
    """Unfold a section of the form."""
    unfold(page.locator(f".st-key-section-{name}"))


def id_in(page: Page, path: str) -> int:
    """The run or group that the page's address names."""
    page.wait_for_url(re.compile(rf"/{path}\?(.*&)?id=\d+"))
    found = re.search(r"[?&]id=(\d+)", page.url)
    assert found is not None
    return int(found[1])


def start(page: Page) -> int:
    """Press the button; the new run's number."""
    button = page.get_by_role("button", name="Start run")
    expect(button).to_be_enabled()
    button.click()
    return id_in(page, "run")


def cards(page: Page, completions: int) -> list[Card]:
    """The cards of a group with this number of completions, in their order; equal ones share a card."""
    heads = page.locator("[class*='st-key-card-']")
    wait_until(
        lambda: sum(map(_completions, heads.all_inner_texts())) == completions, "all have a card", PATIENCE / 1000
    )
    expect(page.get_by_title("advantage", exact=True)).to_have_count(heads.count())
    return [_card(text) for text in heads.all_inner_texts()]


def _completions(head: str) -> int:
    equal = re.match(r"[^\n]*?× (\d+)", head.strip())
    return int(equal[1]) if equal else 1


def _card(text: str) -> Card:
    head = re.match(r"\s*\d[\d–, ]*(?: · × \d+)?(?: · (best|worst))?\s+reward ([\d.−]+)\s+A ([+−\d.]+)", text)
    assert head is not None, text
    return Card(head[1] or "", head[2], head[3])


def value(shown: str) -> float:
    """The number that a text shows."""
    return float(shown.replace("−", "-"))


def precision(shown: str) -> float:
    """Half a unit of a shown number's last digit."""
    return 0.5 * 10.0 ** -len(shown.partition(".")[2]) + 1e-9


def rows(page: Page, header: str, count: int | None = None) -> list[list[str]]:
    """The cells in sight of the table that has a column of this name, once it has so many rows."""
    table = page.locator("canvas table").filter(has=page.locator("th", has_text=re.compile(rf"^{header}$")))
    expect(table).to_have_count(1)
    lines = table.locator("tbody tr:has(td)")
    if count is not None:
        expect(lines).to_have_count(count)
    return [line.locator("td").all_text_contents() for line in lines.all()]


def click_row(page: Page, table: str, row: int) -> None:
    """Click into the prompt of a row of the table of groups: where the mouse rests, as the table follows it frame by frame."""
    grid = page.locator(f"[class*='st-key-{table}'] .dvn-scroller")
    place = Position(x=140, y=HEADER + ROW * row + ROW // 2)
    grid.hover(position=place)
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    grid.click(position=place)


def lines(chart: Locator) -> Locator:
    """The lines of a chart; each says of which series it is in its label."""
    return chart.locator("svg.marks .mark-line path[aria-label]")


def points(line: Locator) -> int:
    """How many points a line has."""
    return len(re.findall(r"[ML]", line.get_attribute("d") or ""))
