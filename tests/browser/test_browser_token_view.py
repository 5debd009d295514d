"""The tokens of a completion: coloured, pointed at, pinned, and found again."""

import re

import pytest
import recorded
from on_page import Open, drawn, id_in, press
from playwright.sync_api import Dialog, Locator, Page, expect
from stack import LONG, ODD, SHORT, Stack

from backend.contract.protocol import Report

pytestmark = pytest.mark.thorough


def address(stack: Stack, completion: int, **choices: str | int) -> str:
    """Of the traced group, with one of its completions open."""
    group = stack.client.groups(stack.traced[0], step=0).items[0]
    return f"/group?id={group.id}&tokens={completion}" + "".join(f"&{key}={value}" for key, value in choices.items())


def tokens(page: Page, count: int) -> Locator:
    """The tokens, once they are all there."""
    found = page.get_by_role("listbox").get_by_role("option", include_hidden=True)
    expect(found).to_have_count(count)
    return found


def reading(page: Page, title: str) -> str:
    """What the panel says of the token that is pointed at or pinned."""
    pair = page.locator(".panel dl > div").filter(has=page.locator("dt").get_by_text(title, exact=True))
    return pair.locator("dd").inner_text()


def colours(page: Page) -> list[str]:
    script = "spans => spans.map(span => span.style.backgroundColor)"
    found: list[str] = page.get_by_role("option").evaluate_all(script)
    return found


def test_each_value_has_its_colours_and_the_view_reopens_from_its_address(open_page: Open, stack: Stack) -> None:
    page = open_page(address(stack, 1))
    tokens(page, len(SHORT))
    seen = set()
    offered = page.get_by_role("radiogroup", name="Colour the tokens by").get_by_role("radio")
    choices = offered.all()
    assert len(choices) == 7
    for choice in choices:
        choice.check()
        seen.add(tuple(colours(page)))
    assert len(seen) == len(choices)
    assert all(len(set(colouring)) > 1 for colouring in seen)

    offered.and_(page.get_by_label("Entropy")).check()
    trace = stack.client.tokens(stack.client.group(id_in(page, "group")).completions[0].id)
    assert trace.entropy is not None
    page.get_by_role("option").nth(5).hover()
    known = trace.entropy[5]
    assert known is not None
    assert float(reading(page, "Entropy")) == pytest.approx(known, rel=1e-5)
    page.get_by_role("option").nth(1).hover()
    assert reading(page, "KL") == "–"  # of the second token it is missing

    page.get_by_role("listbox").press("End")
    page.get_by_role("listbox").press("ArrowLeft")
    expect(page).to_have_url(re.compile(rf"colour=entropy.*token={len(SHORT) - 1}"))
    before = colours(page)
    page.reload()
    pinned = page.get_by_role("option", selected=True)
    expect(pinned).to_have_text(SHORT[-2])
    expect(page.locator(".panel .place")).to_contain_text(f"token {len(SHORT) - 1} of {len(SHORT)}")
    assert colours(page) == before


def test_keys_move_the_pin_inside_the_view_and_the_completion_outside_and_nothing_jumps_where_one_points(
    open_page: Open, stack: Stack
) -> None:
    page = open_page(address(stack, 1))
    spans = tokens(page, len(SHORT))
    boxes = "view => [view, ...view.querySelectorAll('.panel, .tokens, dl > div')].map(each => each.offsetTop + each.offsetHeight)"
    before = page.locator(".view").evaluate(boxes)
    for token in (spans.first, spans.last):
        token.hover()
        expect(page.locator(".panel .place")).to_contain_text(" of ")
        assert page.locator(".view").evaluate(boxes) == before
    page.locator(".about").hover()
    expect(page.locator(".panel .hint")).to_be_visible()
    assert page.locator(".view").evaluate(boxes) == before
    rest = "view => view.getBoundingClientRect().bottom - view.querySelector('.tokens').getBoundingClientRect().bottom"
    assert page.locator(".view").evaluate(rest) < 5
    assert page.locator(".panel").evaluate("panel => panel.offsetHeight") < 160

    box = page.get_by_role("listbox")
    for key, place in (("ArrowRight", 1), ("ArrowRight", 2), ("End", len(SHORT)), ("ArrowLeft", len(SHORT) - 1)):
        box.press(key)
        expect(page.locator(".panel .place")).to_contain_text(f"token {place} of")
    expect(page).to_have_url(re.compile(rf"tokens=1\b.*token={len(SHORT) - 1}|token={len(SHORT) - 1}.*tokens=1\b"))
    box.press("Escape")
    expect(page.get_by_role("option", selected=True)).to_have_count(0)
    expect(page).not_to_have_url(re.compile("token="))
    press(page, "ArrowRight")
    tokens(page, len(LONG))
    expect(page).to_have_url(re.compile(r"tokens=2\b"))


def test_tokens_that_want_to_be_something_else_are_text(open_page: Open, stack: Stack) -> None:
    page = open_page("about:blank")
    dialogs: list[Dialog] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog), dialog.dismiss()))
    page.goto(address(stack, 3))
    texts = tokens(page, len(ODD)).all_text_contents()
    assert texts[0] == ODD[0]
    assert texts[3].startswith("␛[2J␛[31mred␛[0m·␛]8;;http://evil.example␇link")
    assert texts[4:8] == ["⟦RLO⟧abc", ODD[5], "␍", "⇥\t"]
    assert re.fullmatch(r"⟨\d+⟩", texts[8])
    assert texts[9:] == ["◌\u0301e", "⟦U+200B⟧", "⏎\n⏎", "$x^2$"]
    for carrier in ("img[onerror]", "[src*='evil.example']", "[href*='evil.example']", "[href^='javascript']"):
        expect(page.locator(carrier)).to_have_count(0)
    page.get_by_role("option").nth(4).hover()
    expect(page.locator(".panel .literal")).to_have_text(repr(ODD[4]))
    assert dialogs == []


def test_a_long_completion_keeps_scroll_pin_and_hover_while_its_run_goes_on(open_page: Open, stack: Stack) -> None:
    run_id, claim = stack.traced
    page = open_page(address(stack, 2, colour="ratio"))
    tokens(page, len(LONG))
    chart = page.get_by_role("img", name="Ratio along the tokens")
    box = chart.bounding_box()
    assert box is not None
    middle = {"x": box["width"] / 2, "y": box["height"] / 2}
    chart.click(position=middle)
    expect(page.locator(".panel .place")).to_contain_text(re.compile(r"token 200\d of 4000"))
    expect(page.get_by_role("option", selected=True)).to_be_in_viewport()
    expect(page).to_have_url(re.compile(r"token=200\d\b"))
    page.locator(".tokens").evaluate("box => { box.scrollTop = 700; box.querySelector('span').kept = true }")
    groups = [recorded.group_of(0, [1.0, 0.0])]
    stack.client.report(run_id, Report(attempt=claim.attempt, seq=1, step=1, groups=groups, metrics={"reward": 0.5}))
    page.get_by_text("Show spaces").click()
    drawn(page)
    assert page.locator(".tokens").evaluate("box => [box.scrollTop, box.querySelector('span').kept]") == [700, True]
    expect(page.get_by_role("option", selected=True)).to_have_count(1)

    chart.hover(position={**middle, "x": box["width"] * 0.25})  # a token is a fraction of a pixel wide
    expect(page.locator(".tokens .hovered")).to_have_id(re.compile(r"token-(99|100)\d$"))
    clipped = page.locator(".tokens .clipped")
    trace = stack.client.tokens(stack.client.group(id_in(page, "group")).completions[1].id)
    expect(clipped).to_have_count(sum(trace.clipped or []))

    recorded.finish(stack.client, run_id, claim)
    page.goto(address(stack, 4))
    expect(page.get_by_text("This run keeps the token values of each group's best and worst")).to_be_visible()
