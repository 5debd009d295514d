"""The live and memory parts: a page watches a run under way; when it shows each step, and what the processes hold meanwhile."""

import random
import time

import psutil

from backend.contract.protocol import Claim
from scale.making import LIVE
from scale.plan import Plan
from scale.records import Live, Memory, Sample
from scale.reported import Reporter
from scale.site import Contents, Site
from scale.views import CHART, Content, chromium, open_view, settled, wait_for_step

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
