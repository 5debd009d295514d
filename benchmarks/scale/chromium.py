"""A Chromium that opens addresses of the dashboard, and says when all that a person came for is there."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from playwright.sync_api import Page, ViewportSize, sync_playwright

ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync", "--no-first-run")
SIZE = ViewportSize(width=1440, height=900)
PATIENCE = 60_000  # milliseconds; what takes longer is no view

# Milliseconds since the navigation began, once: the script has ended, nothing on the page is of an earlier one, nothing stands
# in for what is to come, every chart and table is drawn, and what was asked for is there, also in a component's own tree.
_READY = """([selector, count]) => {
  const app = document.querySelector('[data-testid="stApp"]')
  if (app?.dataset.testScriptState !== 'notRunning') return false
  if (document.querySelector('[data-stale="true"], [data-testid="stSkeleton"]')) return false
  const lacks = (outer, inner) => [...document.querySelectorAll(outer)].some(one => !one.querySelector(inner))
  if (lacks('[data-testid="stVegaLiteChart"]', '.marks')) return false
  if (lacks('[data-testid="stDataFrame"]', 'canvas')) return false
  const trees = [document]
  document.querySelectorAll('*').forEach(one => one.shadowRoot && trees.push(one.shadowRoot))
  const found = trees.flatMap(tree => [...tree.querySelectorAll(selector)]).filter(one => one.getClientRects().length)
  return found.length >= count && performance.now()
}"""
_STEP = """step => [...document.querySelectorAll('[data-testid="stMetricValue"]')].some(
  one => one.textContent.split(' of ')[0].replace(/[^0-9]/g, '') === String(step))"""


@dataclass(frozen=True)
class Content:
    """What a person came for: so many elements in sight."""

    selector: str
    count: int = 1


@contextmanager
def chromium(url: str) -> Iterator[Page]:
    """A page on the dashboard at `url`."""
    installed = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=installed, args=list(ARGUMENTS))
        page = browser.new_context(base_url=url, viewport=SIZE, locale="en-GB").new_page()
        page.set_default_timeout(PATIENCE)
        yield page
        browser.close()


def open_view(page: Page, address: str, content: Content) -> float:
    """Open the address in the browser's bar; seconds until it is all there."""
    page.goto(address, wait_until="commit")
    return settled(page, content) / 1000


def settled(page: Page, content: Content) -> float:
    """Wait until all is there; milliseconds since the page was opened."""
    ready = page.wait_for_function(_READY, arg=[content.selector, content.count], polling="raf")
    return float(ready.json_value())


def wait_for_step(page: Page, step: int) -> None:
    """Wait until the head of a run's page says that so many steps are done."""
    page.wait_for_function(_STEP, arg=step, polling="raf")
