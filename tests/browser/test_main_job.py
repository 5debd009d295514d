"""The main job, as a person does it: fill in the form, watch the run, read its groups, clone it, compare both."""

import re
import subprocess
from statistics import fmean, pstdev

import pytest
from on_page import (
    Open,
    Worker,
    cards,
    click_row,
    drawn,
    field,
    fill,
    id_in,
    lines,
    open_section,
    points,
    precision,
    rows,
    start,
    value,
)
from playwright.sync_api import Page, expect
from processes import standing_still
from stack import Stack

from dashboard.group.cards import equal_ones

STEPS = 16
MINUTES = 4 * 60_000  # for a loaded machine: all steps take seconds


def watch_it_train(page: Page, stack: Stack, run_id: int, worker: subprocess.Popen[bytes]) -> None:
    """Queued, running, finished, on a page that nobody reloads; its charts grow."""
    header, chart = page.locator(".st-key-run-title"), page.locator(".st-key-panel-reward")
    page.evaluate("window.never_reloaded = true")
    for reached in (2, 6):
        stack.site.wait_for_step(run_id, reached)
        with standing_still(worker):  # a small model's steps are over before anybody has looked
            expect(header).to_contain_text("running")
            expect(page.get_by_test_id("stMetric").filter(has_text="Steps done")).to_contain_text(f"of {STEPS}")
            page.wait_for_function(
                "([line, steps]) => document.querySelector(line)?.getAttribute('d').match(/[ML]/g).length >= steps",
                arg=[".st-key-panel-reward svg.marks .mark-line path[aria-label]", reached],
            )
            assert points(lines(chart).first) < STEPS
    expect(header).to_contain_text("finished", timeout=MINUTES)
    expect(page.get_by_text(f"{STEPS} of {STEPS}")).to_be_visible()
    assert page.evaluate("window.never_reloaded")


def open_a_live_group(page: Page, stack: Stack, run_id: int) -> int:
    """From the run's page to a group of the last step but one."""
    drawn(page)  # that it is finished is said before all is drawn again
    page.get_by_role("tab", name="Groups").click()
    expect(page.get_by_text(re.compile(rf"^Step {STEPS - 1} ·"))).to_be_visible()
    drawn(page)
    page.locator(".st-key-step-back button").first.click()
    expect(page.get_by_text(re.compile(rf"^Step {STEPS - 2} ·"))).to_be_visible()
    drawn(page)
    states = [one.state for one in stack.client.groups(run_id, step=STEPS - 2, sort="index").items]
    assert [row[3] for row in rows(page, "best ends with", 4)] == [
        "live" if state == "live" else "dead" for state in states
    ]
    click_row(page, f"groups-{run_id}", states.index("live"))
    return id_in(page, "group")


def check_the_arithmetic(page: Page, stack: Stack, group_id: int) -> None:
    """What the cards show follows from the rewards that they show, and is what was stored."""
    stored = stack.client.group(group_id).completions
    if len(equal_ones(stored)) < len(stored):
        page.get_by_text("Equal ones apart").click()
        expect(page.locator("[class*='st-key-card-']")).to_have_count(len(stored))
    shown = cards(page, len(stored))
    rewards = [value(card.reward) for card in shown]
    mean, std = fmean(rewards), pstdev(rewards)
    assert std > 0
    for card, reward, completion in zip(shown, rewards, stored, strict=True):
        recomputed = (reward - mean) / (std + 1e-8)
        assert value(card.advantage) == pytest.approx(recomputed, abs=precision(card.advantage))
        assert completion.reward == pytest.approx(reward, abs=1e-9)
        assert completion.advantage == pytest.approx(recomputed, abs=1e-6)
        assert card.advantage.startswith("+" if recomputed > 0 else "−")
    marked = {card.mark: value(card.reward) for card in shown if card.mark}
    assert marked == {"best": max(rewards), "worst": min(rewards)}


def test_a_person_trains_a_model_reads_its_groups_clones_the_run_and_compares_both(
    open_page: Open, stack: Stack, worker: Worker
) -> None:
    page = open_page("/")
    page.get_by_role("button", name="New run").click()
    for recipe, max_new_tokens in (("smollm2-arithmetic", "24"), ("grpo", "48")):
        drawn(page)
        page.locator(f".st-key-recipe-{recipe} button").first.click()
        expect(field(page, "Max new tokens")).to_have_value(max_new_tokens)
    for label, number in (("Prompts per step", 4), ("Group size", 4), ("Steps", STEPS)):
        fill(page, label, str(number))
    open_section(page, "budget")
    fill(page, "Prompts per evaluation", "8")
    fill(page, "Name", "groups of four", ".st-key-preflight")
    expect(page.locator(".st-key-preflight")).to_contain_text("4 prompts × 4 completions = 16 a step")
    trainer = worker()
    with standing_still(trainer):
        first = start(page)
        header = page.locator(".st-key-run-title")
        expect(header).to_contain_text("queued")
        links = [header.get_by_role("link", name=name).element_handle() for name in ("Clone", "Sweep")]
    watch_it_train(page, stack, first, trainer)
    # what somebody was about to press when the run's state changed is still that
    shown = [link.evaluate("link => link.isConnected && link.innerText.trim().split(/\\s+/).pop()") for link in links]
    assert shown == ["Clone", "Sweep"]

    group_id = open_a_live_group(page, stack, first)
    check_the_arithmetic(page, stack, group_id)

    page.get_by_role("link", name=f"Run #{first}").click()
    page.get_by_role("link", name="Clone", exact=True).first.click()
    expect(page.get_by_text(f"Filled from run {first}")).to_be_visible()
    expect(field(page, "Group size")).to_have_value("4")
    fill(page, "Group size", "2")
    fill(page, "Name", "groups of two", ".st-key-preflight")
    second = start(page)
    page.goto("/workers")  # charts that are drawn anew at each step cost as much as the training
    assert stack.site.wait_for_end(second).status == "finished"
    assert stack.client.run(second).parent_id == first

    page.get_by_role("link", name="Runs", exact=True).click()
    drawn(page)
    for run_id in (first, second):
        page.locator(f".st-key-pick-{run_id} label").click()
        expect(page.locator(f".st-key-pick-{run_id} input")).to_be_checked()
    page.get_by_role("link", name="Compare 2 selected").click()
    labels = [f"groups of four #{first}", f"groups of two #{second}"]
    reward = page.locator(".st-key-compare-1")
    for label in labels:
        curve = lines(reward).and_(page.locator(f"[aria-label*='{label}']")).first
        expect(curve).to_be_attached()
        assert points(curve) == STEPS
    page.get_by_text("Where they differ").scroll_into_view_if_needed()
    assert rows(page, "field", 1) == [["sampling.group_size", "4", "2"]]
