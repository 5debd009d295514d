"""A run that goes on beneath somebody who reads, or falls ill while somebody looks."""

import re

import pytest
import recorded
from on_page import Open, drawn, rows
from playwright.sync_api import Page, expect
from processes import wait_until
from stack import Stack

from backend.contract import protocol as p
from backend.contract.client import Client

pytestmark = pytest.mark.thorough

PAGE, TABLE = "[data-testid=stMain]", ".dvn-scroller"
# As in a browser at work, where a tick of the page that has come due goes before a click's own request: it brings what was clicked.
TICK_FIRST = """() => {
  const send = WebSocket.prototype.send
  let clicked, held
  document.addEventListener("click", () => { clicked = true }, {capture: true, once: true})
  WebSocket.prototype.send = function (data) {
    if (!clicked) return send.call(this, data)
    if (!held) return void (held = data)
    WebSocket.prototype.send = send
    this.send(data)
    this.send(held)
  }
}"""
# As in a browser at work, where a part of the page asks behind a click on a link, before the browser hears of the new page.
TICK_BEHIND = """() => new Promise(ticked => {
  const send = WebSocket.prototype.send
  let clicked, tick
  document.addEventListener("click", () => { clicked = true }, {capture: true, once: true})
  WebSocket.prototype.send = function (data) {
    send.call(this, data)
    if (clicked) {
      WebSocket.prototype.send = send
      return this.send(tick)
    }
    tick = data
    ticked()
  }
})"""
# As in a browser at work: what happens within a quarter of a second, it sends in one message.
ONE_MESSAGE = """() => {
  const wait = window.setTimeout
  window.setTimeout = (act, milliseconds, ...rest) => wait(act, milliseconds || 250, ...rest)
}"""
IN_SIGHT = 10  # rows that are whole; at the edge the table comes and goes with a pixel


def scrolled(page: Page) -> list[float]:
    """How far the page and the table of groups are scrolled."""
    return [float(page.locator(part).evaluate("part => part.scrollTop")) for part in (PAGE, TABLE)]


def scroll(page: Page) -> bool:
    """Scroll the page and the table; whether the table's first row went out of sight: one that is still drawn jumps back."""
    for part, way in ((PAGE, 150), (TABLE, 400)):
        page.locator(part).evaluate("(part, way) => { part.scrollTop = way }", way)
    return scrolled(page) == [150, 400] and page.locator("#glide-cell-0-0").count() == 0


def test_new_steps_leave_a_reader_where_he_is(open_page: Open, stack: Stack) -> None:
    run_id, _ = stack.live
    reported = stack.client.steps(run_id)[-1].step
    page = open_page(f"/run?id={run_id}&tab=groups")
    page.set_viewport_size({"width": 1500, "height": 700})
    expect(page.get_by_text(re.compile(rf"^Step {reported} ·"))).to_be_visible()
    drawn(page)
    for step in (reported - 1, reported - 2):
        page.locator(".st-key-step-back button").first.click()
        expect(page.get_by_text(re.compile(rf"^Step {step} ·"))).to_be_visible()
        drawn(page)
    wait_until(lambda: scroll(page), "the first row is out of sight")
    place, read = scrolled(page), rows(page, "best ends with")[:IN_SIGHT]
    assert place == [150, 400]

    for _ in range(3):
        later = stack.go_on()
        expect(page.get_by_role("slider", name="Step")).to_have_attribute("max", str(later))
    assert scrolled(page) == place
    assert rows(page, "best ends with")[:IN_SIGHT] == read
    assert f"step={reported - 2}" in page.url
    expect(page.get_by_text(re.compile(rf"^Step {reported - 2} ·"))).to_be_visible()


def test_a_click_on_a_tab_as_charts_come_in_sight_opens_the_tab(open_page: Open, stack: Stack) -> None:
    page = open_page("about:blank")
    page.set_viewport_size({"width": 1500, "height": 400})
    page.goto(f"/run?id={stack.first}")
    expect(page.get_by_text(re.compile("^Below: "))).to_be_attached()
    drawn(page)
    page.evaluate(ONE_MESSAGE)
    page.get_by_text(re.compile("^Below: ")).evaluate("""async (below) => {
      below.scrollIntoView()
      const frame = () => new Promise(requestAnimationFrame)
      for (let frames = 0; frames < 3; frames++) await frame()
      document.querySelectorAll("[role=tab]")[1].click()
    }""")
    expect(page.get_by_text(re.compile(r"^Step \d+ · "))).to_be_visible()
    assert "tab=groups" in page.url


def test_a_tick_neither_takes_back_the_click_that_it_overtakes_nor_empties_the_page_to_which_one_has_led(
    open_page: Open, stack: Stack
) -> None:
    page = open_page(f"/run?id={stack.live[0]}")
    page.evaluate(TICK_FIRST)
    page.get_by_role("tab", name="Groups").click()
    expect(page.get_by_text(re.compile(r"^Step \d+ · "))).to_be_visible()
    page.wait_for_url(re.compile("tab=groups"))
    drawn(page)
    page.evaluate(TICK_FIRST)
    page.locator(".st-key-follow label").click()
    page.wait_for_url(re.compile(r"step=\d+"))
    drawn(page)
    expect(page.get_by_role("switch", name="Follow the newest")).not_to_be_checked()

    page = open_page(f"/run?id={stack.live[0]}")
    page.evaluate(TICK_BEHIND)
    page.get_by_role("link", name="Sweep", exact=True).click()
    expect(page.get_by_role("combobox", name="Fields to sweep")).to_be_visible()
    drawn(page)
    page.go_back()
    expect(page.get_by_role("tab", name="Groups")).to_be_visible()


def test_the_charts_below_are_drawn_when_somebody_scrolls_there(open_page: Open, stack: Stack) -> None:
    page = open_page("about:blank")
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"/run?id={stack.live[0]}")
    charts = page.locator(".st-key-charts [data-testid=stVegaLiteChart]")
    expect(charts.locator("svg.marks")).to_have_count(6)
    drawn(page)
    expect(page.locator(".st-key-panel-loss")).to_have_count(0)
    loss = page.locator(".st-key-panel-loss svg.marks")

    def scroll_on() -> bool:
        page.locator(PAGE).evaluate("page => page.scrollTo(0, page.scrollHeight)")
        return loss.is_visible()

    wait_until(scroll_on, "the loss is drawn")
    expect(charts.locator("svg.marks")).to_have_count(6)


def start(client: Client) -> tuple[int, p.Claim]:
    run_id = recorded.queue(client, "falls ill", sampling={"engine": "vllm"}, budget={"steps": 20})
    return run_id, recorded.claim(client, run_id, worker=recorded.SAMPLER)


def step(client: Client, claim: p.Claim, number: int, *, cut: float) -> None:
    groups = [recorded.group_of(index, [1.0, 0.0]) for index in range(4)]
    metrics = {"reward": 0.5, "loss": 0.4, "completions/clipped_ratio": cut, "completions/mean_length": 40.0}
    report = p.Report(attempt=claim.attempt, seq=number, step=number, metrics=metrics, groups=groups)
    client.report(claim.run_id, report)


def test_a_hint_appears_on_a_live_run_and_leads_to_the_completions_behind_it_also_when_it_is_over(
    open_page: Open, stack: Stack
) -> None:
    run_id, claim = start(stack.client)
    for number in range(6):
        step(stack.client, claim, number, cut=0.0)
    page = open_page(f"/run?id={run_id}&tab=health")
    expect(page.get_by_text("No warnings.")).to_be_visible()
    rules = page.locator(".st-key-silent-rules details")
    rules.locator("summary").click()
    page.evaluate("window.never_reloaded = true")
    page.locator(".st-key-tab").evaluate("tabs => { tabs.never_built_anew = true }")

    for number in range(6, 12):
        step(stack.client, claim, number, cut=0.5)
    card = page.locator(".st-key-hint-truncation")
    expect(card).to_contain_text("30 % of the completions of steps 2 to 11 were cut at 48 tokens")
    expect(card.locator("svg.marks")).to_have_count(2)
    expect(page.get_by_role("tab", name="Health · 1")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_text("No warnings.")).to_have_count(0)
    expect(rules).to_have_attribute("open", "")
    assert page.evaluate("window.never_reloaded")
    assert page.locator(".st-key-tab").evaluate("tabs => tabs.never_built_anew")

    recorded.finish(stack.client, run_id, claim)
    expect(page.locator(".st-key-run-title")).to_contain_text("finished")
    page = open_page(f"/run?id={run_id}")
    expect(page.locator(".st-key-see-health")).to_be_visible()
    drawn(page)
    page.locator(".st-key-see-health button").click()
    page.wait_for_url(re.compile("tab=health"))
    card = page.locator(".st-key-hint-truncation")
    card.get_by_role("button", name="Find the completions cut at the token limit").click()
    page.wait_for_url(re.compile("tab=search.*finish=cut.*steps_from=2.*steps_to=11"))
    expect(page.get_by_text("40 completions")).to_be_visible()
    drawn(page)
    assert {row[6] for row in rows(page, "ended")} == {"cut at the token limit"}
    page.go_back()
    expect(card).to_be_visible()
    drawn(page)
    card.get_by_role("button", name="Open the groups of step 11").click()
    expect(page.get_by_text(re.compile(r"^Step 11 ·"))).to_be_visible()
    assert "tab=groups" in page.url
