"""The composition trains a run from the form, and loses nothing when it is started anew."""

from collections.abc import Iterator
from typing import Any

import chromium
import pytest
from browser.on_page import field, fill, open_section, start
from composition import SERVICES, Composition, wait_until
from playwright.sync_api import Browser, Page, expect

STEPS = 20  # more than its warm-up
TRAINED = 300_000  # milliseconds until that run must be over
pytestmark = [pytest.mark.containers, pytest.mark.timeout(3600)]  # the first of them builds the images

EACH = pytest.mark.parametrize("service", SERVICES)


@pytest.fixture(scope="module")
def up(composition: Composition) -> Composition:
    composition.up()
    return composition


@pytest.fixture
def page(browser: Browser, up: Composition) -> Iterator[Page]:
    context = browser.new_context(base_url=up.url, viewport={"width": 1500, "height": 1000}, locale="en-GB")
    context.set_default_timeout(chromium.PATIENCE)
    yield context.new_page()
    context.close()


def start_from_the_form(page: Page, name: str, steps: int) -> int:
    """Fill in the form as a person does; the new run's number."""
    page.goto("/")
    page.get_by_role("button", name="New run").click()
    for recipe, max_new_tokens in (("smollm2-arithmetic", "24"), ("grpo", "48")):
        page.locator(f".st-key-recipe-{recipe} button").first.click()
        expect(field(page, "Max new tokens")).to_have_value(max_new_tokens)
    for label, number in (("Prompts per step", 4), ("Group size", 4), ("Steps", steps)):
        fill(page, label, str(number))
    open_section(page, "budget")
    fill(page, "Prompts per evaluation", "8")
    fill(page, "Name", name, ".st-key-preflight")
    return start(page)


def parts(records: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """A run, its series and its groups, of what the export wrote."""
    of = {kind: [line[kind] for line in records if line["kind"] == kind] for kind in ("run", "metrics", "group")}
    return of["run"][0], of["metrics"][0]["series"], of["group"]


@EACH
def test_a_container_has_no_rights_and_only_the_dashboard_is_published_on_this_machine_only(
    up: Composition, service: str
) -> None:
    known = dict(line.split(":", 1) for line in up.exec(service, "cat", "/proc/1/status").splitlines())
    assert {int(known[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert known["NoNewPrivs"].strip() == "1"
    assert set(known["Uid"].split()) == {"10001"}

    bound = up.inspect(service)["HostConfig"]["PortBindings"] or {}
    published = [(place["HostIp"], place["HostPort"]) for places in bound.values() for place in places]
    assert published == ([("127.0.0.1", up.url.rpartition(":")[2])] if service == "dashboard" else [])


def test_the_backend_asks_for_the_token_of_the_env_file(up: Composition) -> None:
    ask = (
        "import httpx, os; print([httpx.get('http://backend:8000/api/v1/runs', "
        "headers={'Authorization': f'Bearer {token}'}).status_code for token in ('x', os.environ['GROUPSCOPE_TOKEN'])])"
    )
    assert up.exec("worker", "python", "-c", ask).strip() == "[401, 200]"


def test_a_run_from_the_form_trains_in_the_workers_container(up: Composition, page: Page) -> None:
    run_id = start_from_the_form(page, "from the form", STEPS)
    expect(page.locator(".st-key-run-title")).to_contain_text("finished", timeout=TRAINED)
    expect(page.get_by_text(f"{STEPS} of {STEPS}")).to_be_visible()
    expect(page.locator(".st-key-panel-reward svg.marks .mark-line path[aria-label]").first).to_be_attached()
    run, series, groups = parts(up.records(run_id))
    assert (run["status"], run["name"]) == ("finished", "from the form")
    assert series["reward"]["step"] == list(range(STEPS))
    trained = [group for group in groups if group["state"] != "probe"]
    assert [len(group["completions"]) for group in trained] == [4] * 4 * STEPS
    assert up.exec("worker", "sh", "-c", f"ls /data/checkpoints/run-{run_id}/*/*.safetensors").strip()


def test_a_run_under_way_goes_on_after_the_composition_was_stopped_and_started(up: Composition, page: Page) -> None:
    before, steps = up.records(1), 100
    run_id = start_from_the_form(page, "interrupted", steps)
    wait_until(lambda: parts(up.records(run_id))[0]["progress"]["step"] > 5, f"run {run_id} is under way")
    assert 137 not in up.stop().values()
    up.up()
    assert up.records(1) == before
    wait_until(lambda: parts(up.records(run_id))[0]["status"] == "finished", f"run {run_id} ends", 900)
    run, series, _ = parts(up.records(run_id))
    assert run["attempt"] == 2
    assert series["reward"]["step"] == list(range(steps))
