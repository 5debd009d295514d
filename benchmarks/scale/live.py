"""The live part: steps of a run under way, and when a page that is open shows each."""

import random
import time

from backend.contract.protocol import Claim
from scale.chromium import Content, chromium, open_view, settled, wait_for_step
from scale.contents import Contents
from scale.making import LIVE
from scale.plan import Plan
from scale.records import Live
from scale.reported import Reporter
from scale.site import Site
from scale.views import CHART

CHARTS = Content(CHART, 6)


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
    """A person looks at the charts of the run while it takes so many steps, at no beat with the page."""
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
