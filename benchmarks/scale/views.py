"""What a person sees, in a Chromium that says when everything is there.

The views part opens pages, each by its address. The live and memory parts watch a run under way: when a page shows each step, and
what the processes hold meanwhile.
"""

import random
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil
from playwright.sync_api import Page, ViewportSize, sync_playwright

from backend.contract.protocol import Claim
from scale.making import LIVE
from scale.plan import Plan
from scale.records import Live, Memory, Sample, View
from scale.reported import COMMON, RARE, Reporter
from scale.site import Contents, Site

CHART, TABLE = "svg.marks", '[data-testid="stDataFrame"] canvas'
PANEL = '[role="tabpanel"] [data-testid="stElementContainer"]'
MAIN = '[data-testid="stMainBlockContainer"] [data-testid="stElementContainer"]'
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync", "--no-first-run")
SIZE = ViewportSize(width=1440, height=900)
PATIENCE = 60_000  # milliseconds; a view that takes longer has failed

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
    """What a person came for: at least `count` visible elements."""

    selector: str
    count: int = 1


@contextmanager
def chromium(url: str) -> Iterator[Page]:
    """A page on the dashboard at `url`."""
    # one with windows first: people have those, and the recorded figures are of such a one
    names = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
    installed = next((path for name in names if (path := shutil.which(name))), None)
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
    """Wait until the head of a run's page says that this number of steps is done."""
    page.wait_for_function(_STEP, arg=step, polling="raf")


def measure_views(site: Site, known: Contents, times: int, *, uncounted: int) -> list[View]:
    """Each view `times` times, after `uncounted` ones that warm up."""
    views = []
    with chromium(site.dashboard_url) as page:
        for name, (address, content) in _views(known).items():
            seconds = [open_view(page, address, content) for _ in range(uncounted + times)]
            views.append(View(name=name, seconds=seconds[uncounted:]))
            print(f"  {views[-1].median:6.2f} s  {name}", flush=True)
    return views


def _views(known: Contents) -> dict[str, tuple[str, Content]]:
    """Address and content, by what it is."""
    run, group = f"/run?id={known.large}", f"/group?id={known.groups[0]}"
    prompt = f"/prompt?prompt={known.prompt_ids[0]}&runs={known.large}"
    compare = f"/compare?runs={','.join(map(str, known.compared))}"
    middle = known.steps[len(known.steps) // 2]
    return {
        "the runs": ("/", Content('[class*="st-key-row-"]', 5)),
        "the large run": (run, Content(CHART, 6)),
        "a zoom into the large run's charts": (f"{run}&range={middle}-{middle + 100}", Content(CHART, 6)),
        "the large run's groups": (f"{run}&tab=groups", Content(TABLE)),
        "the large run's groups at a step": (f"{run}&tab=groups&step={middle}", Content(TABLE)),
        "the large run's prompts": (f"{run}&tab=prompts", Content(TABLE)),
        "the large run's search": (f"{run}&tab=search", Content(TABLE)),
        "a search for a rare word": (f"{run}&tab=search&find={RARE}", Content(TABLE)),
        "a search for a common word": (f"{run}&tab=search&find={COMMON}", Content(TABLE)),
        "the large run's health": (f"{run}&tab=health", Content(".st-key-silent-rules")),
        "the large run's judgement": (f"{run}&tab=judgement", Content(PANEL)),
        "the large run's configuration": (f"{run}&tab=configuration", Content(PANEL)),
        "the large run's log": (f"{run}&tab=log", Content(PANEL)),
        "a group": (group, Content('[class*="st-key-card-"]', 4)),
        "a token view": (f"{group}&tokens=1", Content('[role="listbox"] [role="option"]', 20)),
        "a prompt's history": (prompt, Content(TABLE)),
        "the comparison of 20 runs": (compare, Content(CHART, 2)),
        "the comparison's settings": (f"{compare}&view=Settings", Content(CHART)),
        "the comparison's distributions": (f"{compare}&view=Distributions", Content(CHART, 3)),
        "the comparison's prompts": (f"{compare}&view=Prompts", Content(PANEL, 2)),
        "the workers": ("/workers", Content(MAIN, 3)),
    }


CHARTS = Content(CHART, 6)
STEP = 1.5  # seconds
SAMPLED_EVERY = 10.0
FEWEST = 4  # samples; without two that count there is no rise
WARM_UP = 1 / 6  # of the time: minutes 0 to 5 of 30


class UnderWay:
    """Goes on with the run that the database left under way."""

    def __init__(self, site: Site, plan: Plan) -> None:
        claim = Claim.model_validate_json((site.database.parent / LIVE).read_bytes())
        reported = next(one for one in plan.run_plans() if one.role == "live")
        self._client, self._run_id = site.client, claim.run_id
        self._client.secrets[claim.run_id, claim.attempt] = claim.secret
        self.step = site.client.run(claim.run_id).progress.step  # done so far
        # no report was numbered above this: at most two for each step
        self._reporter = Reporter(reported, claim.attempt, seq=2 * self.step)

    def take_step(self) -> None:
        """Report one step more; on return the backend has stored it."""
        for report in self._reporter.step(self.step):
            self._client.report(self._run_id, report)
        self.step += 1


def measure_live(site: Site, known: Contents, plan: Plan, steps: int) -> Live:
    """A person watches the charts of the run while it takes this number of steps, out of time with the page."""
    pause = random.Random(0)
    under_way = UnderWay(site, plan)
    live = Live(shown=[], drawn=[])
    with chromium(site.dashboard_url) as page:
        open_view(page, f"/run?id={known.live}", CHARTS)
        for step in range(steps + 1):
            time.sleep(pause.uniform(1.0, 3.0))
            began = time.perf_counter()  # the step has ended; its report is on its way
            under_way.take_step()
            wait_for_step(page, under_way.step)
            shown = time.perf_counter() - began
            settled(page, CHARTS)
            if step:  # the first warms up
                live.shown.append(shown)
                live.drawn.append(time.perf_counter() - began)
    return live


def measure_memory(site: Site, known: Contents, plan: Plan, minutes: float) -> Memory:
    """Watch for this number of minutes; the first sixth does not count."""
    under_way = UnderWay(site, plan)
    first = under_way.step
    memory = Memory(since=60 * minutes * WARM_UP, samples=[])
    with chromium(site.dashboard_url) as page:
        open_view(page, f"/run?id={known.live}", CHARTS)
        began = time.monotonic()
        while (seconds := time.monotonic() - began) < 60 * minutes or len(memory.samples) < FEWEST:
            if seconds >= len(memory.samples) * min(SAMPLED_EVERY, memory.since):
                dashboard, backend = (_held(site.processes[name].pid) for name in ("dashboard", "backend"))
                steps = under_way.step - first
                memory.samples.append(Sample(seconds=seconds, dashboard=dashboard, backend=backend, steps=steps))
                held = f"dashboard {dashboard / 1e6:.1f} MB, backend {backend / 1e6:.1f} MB"
                print(f"\r  {seconds / 60:5.1f} minutes, {steps} steps: {held}  ", end="", flush=True)
            under_way.take_step()
            page.wait_for_timeout(STEP * 1000)  # the browser's own events go on
    print()
    return memory


def _held(pid: int) -> int:
    """Bytes that the process and those that it started hold for themselves: pages shared with others come and go with those."""
    process = psutil.Process(pid)
    return sum(int(one.memory_full_info().uss) for one in (process, *process.children(recursive=True)))
