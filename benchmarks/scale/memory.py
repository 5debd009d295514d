"""The memory part: what the processes hold while somebody watches a run that rests 1.5 seconds between two steps."""

import time

import psutil

from scale.chromium import chromium, open_view
from scale.contents import Contents
from scale.live import CHARTS, UnderWay
from scale.plan import Plan
from scale.records import Memory, Sample
from scale.site import Site

STEP = 1.5  # seconds
SAMPLED_EVERY = 10.0
FEWEST = 4  # samples; without two that count there is no rise
WARM_UP = 1 / 6  # of the time: minutes 0 to 5 of 30


def measure_memory(site: Site, known: Contents, plan: Plan, minutes: float) -> Memory:
    """Watch for so many minutes; the first sixth does not count."""
    under_way = UnderWay(site, plan)
    first = under_way.step
    memory = Memory(since=60 * minutes * WARM_UP, samples=[])
    with chromium(site.dashboard_url) as page:
        open_view(page, f"/run?id={known.live}", CHARTS)
        began = time.monotonic()
        while (seconds := time.monotonic() - began) < 60 * minutes or len(memory.samples) < FEWEST:
            if seconds >= len(memory.samples) * min(SAMPLED_EVERY, memory.since):
                sample = Sample(
                    seconds=seconds,
                    dashboard=_held(site.dashboard.pid),
                    backend=_held(site.backend.pid),
                    steps=under_way.step - first,
                )
                memory.samples.append(sample)
                _show(sample)
            under_way.take_step()
            page.wait_for_timeout(STEP * 1000)  # the browser's own events go on
    print()
    return memory


def _held(pid: int) -> int:
    """Bytes that the process and those that it started hold for themselves: pages shared with others come and go with those."""
    process = psutil.Process(pid)
    return sum(int(one.memory_full_info().uss) for one in (process, *process.children(recursive=True)))


def _show(sample: Sample) -> None:
    held = f"dashboard {sample.dashboard / 1e6:.1f} MB, backend {sample.backend / 1e6:.1f} MB"
    print(f"\r  {sample.seconds / 60:5.1f} minutes, {sample.steps} steps: {held}  ", end="", flush=True)
