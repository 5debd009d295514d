"""A run falls ill while somebody looks, and the hint leads to what it is about."""

import re

import pytest
import recorded
from on_page import Open, drawn, rows
from playwright.sync_api import expect
from stack import Stack

from backend.contract import protocol as p
from backend.contract.client import Client

pytestmark = pytest.mark.thorough


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
