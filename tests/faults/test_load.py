"""Fifty people watch a live run while four workers report: nothing fails, reads stay quick, and no worker loses its run."""

import json
import multiprocessing
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from types import ModuleType

import psutil
import pytest
import recorded
from acting import GRPO, Actor, Beats
from processes import TOKEN, Site
from spectators import Seen, watch

from backend.contract.client import Client

pytestmark = [pytest.mark.slow, pytest.mark.thorough]

WORKERS, EVERY, LEASE = 4, 2.0, 10.0
BEFORE = 300  # steps that the run has when people come
STEPS = 1_000_000
CHARTS = (
    "reward", "kl", "entropy", "loss", "grad_norm", "learning_rate", "step_time", "group_reward_std", "frac_unscored",
    "frac_reward_zero_std", "completions/mean_length", "completions/clipped_ratio", "tokens_per_second", "peak_memory",
    "rewards/correctness/mean", "rewards/format/mean", "clip_ratio/low_mean", "clip_ratio/high_mean",
    "time/rollout", "time/reward", "time/reference", "time/update", "time/report",
)  # fmt: skip
NAMES = (*CHARTS, *(f"custom/{number:02}" for number in range(50 - len(CHARTS))))


@dataclass
class Worked:
    """What one worker met with."""

    reported: dict[int, float] = field(default_factory=dict)  # steps done -> when the backend had taken it
    seconds: list[float] = field(default_factory=list)  # that a report took
    beats: Beats = field(default_factory=Beats)


def step_of(number: int, groups: int = 16) -> dict[str, object]:
    """What a step of 16 groups of 8 reports, with the tokens of each group's best and worst."""
    rewards = [[(index + place + number) % 4 / 3 for place in range(8)] for index in range(groups)]
    made = [recorded.group_of(index, of_group) for index, of_group in enumerate(rewards)]
    metrics = {name: (number * 37 + place) % 101 / 101 for place, name in enumerate(NAMES)}
    return {"groups": made, "metrics": metrics, "trace": recorded.trace_of(made)}


class Working:
    """One worker and its run: it claims, beats from the first moment on, and reports a step every two seconds once it is asked to."""

    def __init__(self, url: str, name: str) -> None:
        self.client = Client(url, TOKEN, timeout=30)
        self.actor = Actor(self.client, name).begin()
        self.done, self.worked = 0, Worked()

    def catch_up(self, steps: int) -> None:
        """Report steps without groups, one after the other."""
        for self.done in range(1, steps + 1):
            self.actor.report(self.done - 1, groups=[], metrics=dict.fromkeys(NAMES, self.done % 100 / 100))

    def train(self, begin: float, until: float) -> Worked:
        """A step every two seconds between the two."""
        due = begin
        while due < until:
            content = step_of(self.done)
            time.sleep(max(0.0, due - time.monotonic()))
            began, due = time.monotonic(), due + EVERY
            self.actor.report(self.done, **content)
            self.done += 1
            self.worked.reported[self.done] = time.monotonic()
            self.worked.seconds.append(time.monotonic() - began)
        return self.worked


def probe(url: str, run_id: int, begin: float, until: float) -> dict[str, list[float]]:
    """Seconds that the reads of the run's page take, asked for beside everybody else."""
    seconds: dict[str, list[float]] = defaultdict(list)
    with Client(url, TOKEN, timeout=30) as client:
        reads: Mapping[str, Callable[[], object]] = {
            "the run": lambda: client.run(run_id),
            "its charts": lambda: client.metrics(run_id, names=CHARTS, max_points=250),
            "its health": lambda: client.health(run_id),
            "the workers": client.workers,
            "the queue": lambda: client.runs(status="queued", limit=100),
            "the runs": client.runs,
        }
        time.sleep(max(0.0, begin - time.monotonic()))
        while time.monotonic() < until:
            for name, read in reads.items():
                began = time.monotonic()
                read()
                seconds[name].append(time.monotonic() - began)
            time.sleep(0.25)
    return seconds


def p95(values: Sequence[float]) -> float:
    return quantiles(values, n=20)[-1] if len(values) > 1 else values[0]


def say(name: str, values: Sequence[float]) -> None:
    if not values:
        return
    print(  # noqa: T201 — figures for docs/reliability.md
        f"{name:42} {len(values):6} x  median {median(values) * 1000:7.1f} ms  p95 {p95(values) * 1000:7.1f} ms  "
        f"slowest {max(values) * 1000:7.1f} ms"
    )


def served(file: Path, begin: float, until: float) -> tuple[dict[str, list[float]], Counter[int]]:
    """How long the backend took for each answer, by route, and what it answered."""
    seconds: dict[str, list[float]] = defaultdict(list)
    statuses: Counter[int] = Counter()
    for line in map(json.loads, file.read_text().splitlines()):
        statuses[line["status"]] += 1
        if begin <= line["at"] - line["seconds"] < until:
            seconds[f"{line['method']} {line['route']}"].append(line["seconds"])
    return seconds, statuses


def lags(spectators: Sequence[Seen], reported: Mapping[int, float], begin: float) -> list[float]:
    """For each who watches and each step: from its report to its number, or a later one, in the page's head."""
    found = []
    for seen in spectators:
        shown = sorted(seen.steps.items())
        for step, taken in reported.items():
            if taken >= begin and (later := [when for done, when in shown if done >= step]):
                found.append(max(0.0, min(later) - taken))
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("people", "seconds"), [(8, 8.0), pytest.param(50, 75.0, marks=[pytest.mark.long, pytest.mark.timeout(900)])]
)
def test_many_who_watch_a_live_run_slow_nobody_and_take_no_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, people: int, seconds: float
) -> None:
    # another test of this process may have left a page as the main module, and a spawned process would begin by running that
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    with Site(tmp_path / "home", lease_seconds=LEASE) as site:
        times = site.home / "times.jsonl"
        backend = site.backend(module="tests.faults.backend_with_times", GROUPSCOPE_TEST_TIMES=str(times))
        dashboard = site.dashboard()
        for _ in range(WORKERS):
            site.client.create_run(GRPO | {"budget": GRPO["budget"] | {"steps": STEPS}})
        workers = [Working(site.url, f"worker {place}") for place in range(WORKERS)]
        run_id = workers[0].actor.run_id
        with ExitStack() as open_:
            for worker in workers:
                worker.worked.beats = open_.enter_context(worker.actor.beating(LEASE / 4))
            workers[0].catch_up(BEFORE)
            others = open_.enter_context(ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")))
            threads = open_.enter_context(ThreadPoolExecutor(WORKERS))
            arriving, drawn = people * 0.3, min(10.0, people * 0.5)
            begin = time.monotonic() + arriving + drawn
            until = begin + seconds
            watching = others.submit(watch, dashboard, "run", f"id={run_id}", people, arriving, until, BEFORE)
            asking = others.submit(probe, site.url, run_id, begin, until)
            worked = list(threads.map(lambda worker: worker.train(begin, until), workers))
            spectators, probed = watching.result(), asking.result()
        print()  # noqa: T201
        for name, values in probed.items():
            say(f"probe: {name}", values)
        answered, statuses = served(times, begin, until)
        for route, values in sorted(answered.items(), key=lambda item: -len(item[1])):
            say(route, values)
        say("from a step's report to the page's head", lags(spectators, worked[0].reported, begin))
        say("a report, as its worker waits", [one for one_worked in worked for one in one_worked.seconds])
        family = [psutil.Process(backend.pid), *(psutil.Process(one.pid) for one in site.dashboards)]
        print(  # noqa: T201
            f"{sum(one.pages for one in spectators)} pages and {sum(one.parts for one in spectators)} parts of pages drawn, "
            f"{sum(len(one.charts) for one in spectators)} charts; processor time: "
            + ", ".join(f"{sum(one.cpu_times()[:2]):.0f} s, {one.memory_info().rss >> 20} MiB" for one in family)
        )
        assert [one.wrong for one in spectators if one.wrong] == []
        assert [error for one in worked for error in one.beats.refused] == []
        assert [status for status in statuses if status >= 400] == []
        assert [site.client.run(worker.actor.run_id).attempt for worker in workers] == [1] * WORKERS, "no lease is lost"
        assert [log.read_text() for log in site.home.glob("*.log") if "Traceback" in log.read_text()] == []
        assert all(max(one.steps, default=0) > BEFORE for one in spectators), "the pages follow the run"
