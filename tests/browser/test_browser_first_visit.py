"""The five clicks of docs/inspector/README.md, from the list of runs to why a group was dead: in a run of ours, and in TRL's."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import recorded
from on_page import Open, click_row, drawn
from playwright.sync_api import Page, expect
from processes import TOKEN, kill, wait_until
from stack import Stack

pytestmark = pytest.mark.thorough

PROGRAM = Path(__file__).with_name("trl_program.py")


def open_a_dead_group_and_its_prompt(page: Page, run_id: int, why: str) -> None:
    drawn(page)
    click_row(page, f"groups-{run_id}", 0)
    expect(page.get_by_text(re.compile(f"^Dead: all 4 scored completions got .*{why}"))).to_be_visible()
    page.get_by_role("link", name=re.compile("^This prompt: .* draws?")).click()
    expect(page.get_by_text(re.compile("Mean reward at each draw"))).to_be_visible()


def test_five_clicks_say_why_a_group_was_dead(open_page: Open, stack: Stack) -> None:
    run_id = stack.live[0]
    newest = stack.go_on(recorded.group_of(0, [1.0] * 4))
    assert stack.client.groups(run_id, step=newest, state="zero_variance", limit=1).items
    page = open_page("/")
    page.get_by_role("link", name=stack.client.run(run_id).name, exact=True).click()
    expect(page.get_by_test_id("stMetric").first).to_be_visible()
    drawn(page)
    page.get_by_role("tab", name="Groups").click()
    expect(page.get_by_text(re.compile(rf"^Step {newest} · .* dead"))).to_be_visible()
    page.locator(".st-key-show").get_by_role("radio", name="dead", exact=True).click()
    page.wait_for_url(re.compile("show=dead"))
    open_a_dead_group_and_its_prompt(page, run_id, " only the KL penalty")


def test_a_training_of_trl_is_watched_from_nothing_to_why_a_group_was_dead(
    open_page: Open, stack: Stack, tmp_path: Path
) -> None:
    page = open_page("/")
    link = page.get_by_role("link", name="somebody's TRL", exact=True)
    expect(link).to_have_count(0)
    places = {"GROUPSCOPE_BACKEND_URL": stack.site.url, "GROUPSCOPE_TOKEN": TOKEN, "GROUPSCOPE_HOME": str(tmp_path)}
    environment = {**os.environ, **places, "PYTHONPATH": str(PROGRAM.parents[2])}
    training = subprocess.Popen([sys.executable, str(PROGRAM), str(tmp_path / "out")], env=environment)
    try:
        expect(link).to_be_visible(timeout=120_000)
        link.click()
        expect(page.get_by_test_id("stMetric").first).to_be_visible()
        expect(page.get_by_test_id("stSkeleton")).to_have_count(0)  # its charts never stand still
        page.get_by_role("tab", name="Groups").click()
        run = stack.client.runs(kind="recorded", search="somebody's TRL").items[0]
        expect(page.get_by_text(re.compile(r"^Step \d+ · .* dead"))).to_be_visible()
        assert stack.client.run(run.id).status == "running"
        page.locator(".st-key-show").get_by_role("radio", name="dead", exact=True).click()
        page.wait_for_url(re.compile("show=dead"))
        # otherwise the table goes on to another step beneath the pointer
        page.get_by_text("Follow the newest", exact=True).click()
        expect(page.get_by_role("switch", name="Follow the newest")).not_to_be_checked()
        page.wait_for_url(re.compile(r"step=\d"))  # the server knows
        open_a_dead_group_and_its_prompt(page, run.id, "")
        stack.client.command(run.id, "stop")
        wait_until(lambda: stack.client.run(run.id).status == "stopped", "its record is over")
        assert training.poll() is None
    finally:
        kill(training)
