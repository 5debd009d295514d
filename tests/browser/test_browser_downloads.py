"""What a person takes away from a finished and from a live run, and opens elsewhere."""

import json
import re
import struct
from pathlib import Path

import pandas as pd
import pytest
from on_page import Open, drawn
from playwright.sync_api import Browser, Download, Page, expect
from stack import Stack

from dashboard.group.cards import equal_ones

pytestmark = pytest.mark.thorough


def take(page: Page, link: str) -> Download:
    with page.expect_download() as download:
        page.locator(".downloads").get_by_role("link", name=re.compile(f"^{link}")).click()
    return download.value


def test_a_live_runs_report_opens_from_a_file_and_asks_for_nothing_and_its_tables_are_read_elsewhere(
    open_page: Open, browser: Browser, stack: Stack, tmp_path: Path
) -> None:
    run_id = stack.live[0]
    group = stack.client.groups(run_id, state="live", sort="-step").items[0]
    stack.client.people.bookmark(group.id, "Look <b>here</b>.")
    page = open_page(f"/run?id={run_id}&tab=configuration")
    page.get_by_role("button", name="Downloads").click()
    expect(page.locator(".downloads a")).to_have_count(7)
    for link in ("Groups", "Metrics", "Everything", "Configuration"):
        download = take(page, link)
        download.save_as(tmp_path / link)
    groups = pd.read_parquet(tmp_path / "Groups")
    assert set(groups["step"]) == {summary.step for summary in stack.client.steps(run_id)}
    assert groups["advantage"].dtype == "float64"
    metrics = pd.read_parquet(tmp_path / "Metrics")
    assert {"reward", "kl", "eval/pass@1"} <= set(metrics["name"])
    losses = metrics[metrics["name"] == "loss"]
    assert list(losses["step"]) == stack.client.metrics(run_id, names=["loss"]).series["loss"].step
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "Everything").open()]
    assert kinds[0] == "run"
    assert kinds.count("group") == groups["group_id"].nunique()
    assert "kind: grpo" in (tmp_path / "Configuration").read_text()

    page.get_by_role("button", name="examples", exact=True).click()  # off: the bookmarked ones alone
    expect(page.locator(".downloads a").first).to_have_attribute("href", re.compile("groups=bookmarked$"))
    download = take(page, "Report")
    assert download.suggested_filename == f"run-{run_id}.html"
    file = tmp_path / download.suggested_filename
    download.save_as(file)
    alone = browser.new_context(offline=True, java_script_enabled=False).new_page()
    asked: list[str] = []
    alone.on("request", lambda request: asked.append(request.url))
    alone.goto(file.as_uri())
    expect(alone.locator(".charts figure svg").first).to_be_visible()
    assert alone.locator(".charts figure").count() >= 10
    expect(alone.locator("article.group")).to_have_count(1)
    expect(alone.locator("article.group")).to_contain_text("Look <b>here</b>.")
    different = equal_ones(stack.client.group(group.id).completions)
    expect(alone.locator("article.group .card")).to_have_count(len(different))
    for one in stack.client.group(group.id).completions:
        expect(alone.locator("article.group")).to_contain_text(one.text)
    expect(alone.locator("#configuration")).to_contain_text("learning_rate")
    assert asked == [file.as_uri()]
    alone.context.close()
    stack.client.people.remove_bookmark(group.id)


def test_a_chart_is_a_picture_of_its_own_and_its_links_cover_no_help(open_page: Open, stack: Stack) -> None:
    run_id = stack.live[0]
    page = open_page(f"/run?id={run_id}")
    page.set_viewport_size({"width": 1440, "height": 900})
    panel = page.locator(".st-key-panel-dead")  # the longest title
    expect(panel.locator("svg.marks")).to_be_visible()
    drawn(page)
    panel.locator("[class*='st-key-figure-']").hover()
    help = panel.get_by_test_id("stTooltipIcon").bounding_box()
    links = panel.get_by_role("group", name="Save this chart").bounding_box()
    assert help is not None
    assert links is not None
    assert links["y"] > help["y"] + help["height"] or links["x"] > help["x"] + help["width"]
    pictures = {}
    for kind in ("PNG", "SVG"):
        with page.expect_download() as download:
            panel.get_by_role("link", name=kind, exact=True).click()
        assert download.value.suggested_filename == f"run-{run_id}-dead.{kind.lower()}"
        pictures[kind] = download.value.path().read_bytes()
    assert pictures["PNG"].startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", pictures["PNG"][16:24])
    assert width >= 1000
    assert height >= 400
    assert pictures["SVG"].startswith(b"<svg")
    page.get_by_role("tab", name="Groups").click()
    page.wait_for_url(re.compile("tab=groups"))  # a file that was saved is no page that was left


def test_every_page_with_charts_offers_them_as_pictures(open_page: Open, stack: Stack) -> None:
    group = stack.client.groups(stack.first, state="live").items[0]
    page = open_page("about:blank")
    for address in (f"/group?id={group.id}&wi_open=true", f"/compare?runs={stack.first},{stack.second}", "/playground"):
        page.goto(stack.url + address)
        charts = page.get_by_test_id("stVegaLiteChart")
        expect(charts.first).to_be_visible()
        drawn(page)
        offered = page.locator("[class*='st-key-figure-']").filter(has=page.get_by_role("link", name="SVG", exact=True))
        assert offered.count() == charts.count(), address
        with page.expect_download() as download:
            offered.first.get_by_role("link", name="SVG", exact=True).dispatch_event("click")
        assert download.value.path().read_text().startswith("<svg")


def test_the_curve_over_the_tokens_is_a_picture_too(open_page: Open, stack: Stack, tmp_path: Path) -> None:
    group = stack.client.groups(stack.traced[0], step=0).items[0]
    page = open_page(f"/group?id={group.id}&tokens=1&colour=entropy")
    save = page.get_by_role("group", name="Save the curve")
    for kind in ("PNG", "SVG"):
        with page.expect_download() as download:
            save.get_by_role("button", name=kind).click()
        assert re.fullmatch(rf"completion-\d+-entropy\.{kind.lower()}", download.value.suggested_filename)
        download.value.save_as(tmp_path / kind)
    assert struct.unpack(">II", (tmp_path / "PNG").read_bytes()[16:24]) == (1520, 560)
    assert ">Entropy along the tokens</text>" in (tmp_path / "SVG").read_text()
