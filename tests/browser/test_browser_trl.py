"""A training of TRL's, watched live: from a page that knows nothing of it to why one of its groups was dead, in the clicks of docs/inspector."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from on_page import Open, click_row, drawn
from playwright.sync_api import expect
from processes import TOKEN, wait_until
from stack import Stack

pytestmark = pytest.mark.thorough

PROGRAM = Path(__file__).with_name("trl_program.py")


@pytest.fixture
def program(stack: Stack, tmp_path: Path) -> Callable[[], subprocess.Popen[bytes]]:
    def start() -> subprocess.Popen[bytes]:
        places = {"GROUPSCOPE_BACKEND_URL": stack.site.url, "GROUPSCOPE_TOKEN": TOKEN, "GROUPSCOPE_HOME": str(tmp_path)}
        command = [sys.executable, str(PROGRAM), str(tmp_path / "out")]
        return subprocess.Popen(command, env={**os.environ, **places, "PYTHONPATH": str(PROGRAM.parents[2])})

    return start


def test_a_training_of_trl_is_watched_from_nothing_to_why_a_group_was_dead(
    open_page: Open, stack: Stack, program: Callable[[], subprocess.Popen[bytes]]
) -> None:
    page = open_page("/")
    link = page.get_by_role("link", name="somebody's TRL", exact=True)
    expect(link).to_have_count(0)
    training = program()
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
        drawn(page)
        click_row(page, f"groups-{run.id}", 0)
        expect(page.get_by_text(re.compile(r"^Dead: all 4 scored completions got .*"))).to_be_visible()
        page.get_by_role("link", name=re.compile("^This prompt: .* draws?")).click()
        expect(page.get_by_text(re.compile("Mean reward at each draw"))).to_be_visible()
        stack.client.command(run.id, "stop")
        wait_until(lambda: stack.client.run(run.id).status == "stopped", "its record is over")
        assert training.poll() is None
    finally:
        training.kill()
        training.wait()
