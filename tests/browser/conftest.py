"""One set of real processes for all browser tests, and a Chromium that looks at them."""

import subprocess
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import chromium
import hostile
import pytest
import recorded
from on_page import drawn
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize
from playwright.sync_api import Error as PlaywrightError
from processes import Site
from stack import HOSTILE, IMAGE, LONG, ODD, SCRIPT, SHORT, Stack
from token_traces import trace_of_tokens

from backend.contract.client import Client
from backend.contract.protocol import Claim, Report

VIEWPORT = ViewportSize(width=1500, height=1000)
NOTHING = "/_stcore/health"  # a page of the same site, which does nothing
SHOWN = "document.querySelector('.stApp')?.dataset.testScriptState + '\\n' + document.body.innerText"

browser = pytest.fixture(scope="session")(chromium.browser)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """No test here is one of `make check`."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker("slow")


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Everything but a worker."""
    # nobody renews the leases of the recorded runs: none runs out, however slow the machine
    site = Site(tmp_path_factory.mktemp("browser") / "home", lease_seconds=3600.0)
    try:
        site.backend()
        records = {
            "first": _ended(site.client, "recorded one", group_size=4),
            "second": _ended(site.client, "recorded two", group_size=8),
            "hostile": _hostile(site.client),
            "everything": hostile.record(site.client),
        }
        live = recorded.queue(site.client, "under way", budget={"steps": 40})
        claim = recorded.train(site.client, live, steps=5, total=40, prompts=60, group_size=4)
        yield Stack(site, site.dashboard(), (live, claim), _traced(site.client), **records)
    finally:
        site.close()


@pytest.fixture(params=["finished", "live"])
def run_id(request: pytest.FixtureRequest, stack: Stack) -> int:
    """A run that is over, and one that goes on."""
    return stack.first if request.param == "finished" else stack.live[0]


@pytest.fixture(scope="session")
def worker(stack: Stack) -> Callable[[], subprocess.Popen[bytes]]:
    """Starts the one worker when it is first called."""
    return cache(stack.site.worker)


@pytest.fixture(scope="session")
def context(browser: Browser, stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """Of one person, who has been here before: the browser keeps the dashboard's scripts, as they are and compiled."""
    with browser.browser_type.launch_persistent_context(
        tmp_path_factory.mktemp("profile"),
        executable_path=chromium.installed(),
        args=list(chromium.ARGUMENTS),
        base_url=stack.url,
        viewport=VIEWPORT,
        locale="en-GB",
        reduced_motion="reduce",
    ) as context:
        context.set_default_timeout(chromium.PATIENCE)
        yield context


@pytest.fixture(scope="session")
def left_tabs() -> list[Page]:
    """The tabs that no test uses now. The process behind one has the dashboard's scripts in memory: half the work of a load."""
    return []


@pytest.fixture
def open_page(context: BrowserContext, left_tabs: list[Page]) -> Iterator[Callable[[str], Page]]:
    """Opens an address of the dashboard in a tab that this test has for itself, as a session of its own. A test that prepares
    its tab, with listeners or routes, opens "about:blank": that tab is new, and nobody has it afterwards. Others get it drawn."""
    opened: list[Page] = []
    prepared: list[Page] = []

    def open_(address: str) -> Page:
        new = address == "about:blank" or not left_tabs
        page = context.new_page() if new else left_tabs.pop()
        page.bring_to_front()  # behind another tab of the window a list closes as it opens
        (prepared if address == "about:blank" else opened).append(page)
        page.goto(address)
        if address != "about:blank":
            drawn(page)
        return page

    yield open_
    for page in prepared:
        page.close()
    for page in opened:
        page.goto(NOTHING)
        page.set_viewport_size(VIEWPORT)
        page.mouse.move(0, 0)
    left_tabs.extend(opened)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Function) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where a test failed: what its tabs showed just then, and what the dashboard had asked the backend for."""
    report = yield
    if report.failed and report.when == "call" and "context" in item.funcargs:
        for page in item.funcargs["context"].pages:
            if not page.url.endswith(NOTHING):
                with suppress(PlaywrightError):  # one that is on its way elsewhere
                    report.sections.append((page.url, page.evaluate(SHOWN)))
        log = item.funcargs["stack"].site.home / "dashboard.server.log"
        report.sections.append((log.name, "\n".join(log.read_text().splitlines()[-40:])))
    return report


def _ended(client: Client, name: str, *, group_size: int) -> int:
    run_id = recorded.queue(client, name, sampling={"group_size": group_size}, budget={"steps": 6})
    claim = recorded.train(client, run_id, steps=6, total=6, prompts=3, group_size=group_size)
    recorded.finish(client, run_id, claim)
    return run_id


def _hostile(client: Client) -> int:
    run_id, claim = recorded.started(client, f"hostile {SCRIPT}")
    group = recorded.group_of(0, [1.0, 0.1, 0.0, 0.9], texts=HOSTILE, prompt=IMAGE)
    client.report(run_id, Report(attempt=claim.attempt, seq=0, step=0, groups=[group], metrics={"reward": 0.5}))
    recorded.finish(client, run_id, claim)
    return run_id


def _traced(client: Client) -> tuple[int, Claim]:
    run_id, claim = recorded.started(client, "token by token", telemetry={"token_traces": "extremes"})
    tokens = (SHORT, LONG, ODD)
    group = recorded.group_of(0, [1.0, 0.1, 0.0, 0.9], texts=[*map("".join, tokens), "no trace"])
    report = Report(attempt=claim.attempt, seq=0, step=0, groups=[group], trace=trace_of_tokens(tokens), metrics={})
    client.report(run_id, report)
    return run_id, claim
