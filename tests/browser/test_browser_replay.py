"""A step of a run is explained: asked for on Groups, done by the worker, read on its page; then a group is taken apart, and another clip asked about."""

import re

import pytest
from on_page import Open, Worker, drawn, field, rows
from playwright.sync_api import Page, expect
from processes import tiny_run
from stack import Stack

pytestmark = pytest.mark.thorough

STEP, SIZE = 2, 4
ANOTHER = re.compile(r"/run\?id=\d+")


def asked(page: Page, stack: Stack, button: str) -> int:
    """Press a button that queues a replay, and wait until that has ended and its page shows it; the replay."""
    before = page.url
    drawn(page)  # otherwise the button may move away under the mouse
    page.get_by_role("button", name=button, exact=True).click()
    page.wait_for_url(lambda url: url != before and ANOTHER.search(url) is not None)
    newest = max(one.id for one in stack.client.runs(kind="replay").items)
    ended = stack.site.wait_for_end(newest)
    assert (ended.status, ended.error) == ("finished", None)
    expect(page.get_by_text("made the update").first).to_be_visible()
    drawn(page)
    return newest


def test_from_the_groups_to_what_made_the_update_and_what_another_clip_would_have_made(
    open_page: Open, stack: Stack, worker: Worker
) -> None:
    worker()
    several = {"updates_per_batch": 2}
    run = stack.client.create_run(tiny_run(STEP + 1, every=1, algorithm=several, telemetry={"probe_prompts": 2}))
    assert stack.site.wait_for_end(run.id).status == "finished"
    page = open_page(f"/run?id={run.id}&tab=groups&step={STEP}")
    page.get_by_role("button", name="Explain this step").click()
    first = asked(page, stack, f"Explain step {STEP}")

    found = stack.client.replayed(first)
    assert sum(part.share for part in found.groups) + found.momentum + found.decay == pytest.approx(1, abs=1e-3)
    for chart in ("Share of each group in the step's update", "Cosines between the gradients of groups"):
        expect(page.get_by_label(chart, exact=True)).to_be_visible()
    ranked = sorted(found.groups, key=lambda part: -abs(part.share))
    assert [row[0] for row in rows(page, "share", len(ranked))] == [str(part.index + 1) for part in ranked]

    page.get_by_role("button", name="Take a group apart").click()
    second = asked(page, stack, "Take it apart")
    detail = stack.client.replayed(second).detail
    assert detail is not None
    assert (detail.group, len(detail.completions)) == (ranked[0].index, SIZE)
    expect(page.get_by_text(f"Group {detail.group + 1}, taken apart")).to_be_visible()
    assert len(rows(page, "tokens that did most", SIZE)) == SIZE

    page.get_by_role("button", name="Another algorithm").click()
    expect(page.get_by_role("button", name="Compare", exact=True)).to_be_disabled()
    narrow = field(page, "ε high")
    narrow.fill("0.001")
    narrow.press("Enter")
    expect(page.get_by_role("button", name="Compare", exact=True)).to_be_enabled()
    third = asked(page, stack, "Compare")
    other = stack.client.replayed(third).other
    assert other is not None
    assert other.algorithm["surrogate"]["epsilon_high"] == 0.001  # type: ignore[index,call-overload]
    expect(page.get_by_text("Another algorithm, from the same step")).to_be_visible()
    assert rows(page, "with the other")

    page = open_page(f"/run?id={run.id}&tab=groups&step={STEP}")  # what was explained is found again
    page.get_by_role("button", name="Explain this step").click()
    for replay in (first, second, third):
        expect(page.get_by_role("link", name=f"Explanation #{replay}: finished")).to_be_visible()
    drawn(page)
