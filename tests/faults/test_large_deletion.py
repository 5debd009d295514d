"""A large run is deleted while others train: no worker loses its run, and every other request is answered."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median, quantiles

import pytest
from acting import GRPO, Actor
from large_run import grow
from processes import TOKEN, Site, tiny_run, wait_until

from backend.contract.client import Client
from backend.contract.records import RunUpdate

pytestmark = [pytest.mark.slow, pytest.mark.thorough]

LEASE = 3.0  # seconds
COUNTS = [10_240, pytest.param(128_000, marks=[pytest.mark.long, pytest.mark.timeout(1800)])]
ENGINE = "vllm"  # the workers that train have none, so this test's own worker gets the run that asks for it


class Visitors:
    """People and a worker that beats, each with a request every twentieth of a second: how long each took."""

    def __init__(self, site: Site, run_id: int) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.failures: list[Exception] = []
        self._over = threading.Event()
        self._clients = [Client(site.url, TOKEN) for _ in range(3)]
        reader, writer, other = self._clients
        beating = Actor(other, "beating")
        beating.info = beating.info.model_copy(update={"engines": [ENGINE]})
        waiting = tiny_run(100, sampling={"engine": ENGINE})
        writer.create_run(waiting)
        beating.begin()
        asked = [
            pages_of(reader, run_id),
            {
                "rename": lambda: writer.update_run(run_id, RunUpdate(name="another")),
                "submit": lambda: writer.create_run(waiting, idempotency_key="the same each time"),
            },
            {"heartbeat": beating.beat},
        ]
        self._threads = [threading.Thread(target=self._ask, args=(requests,)) for requests in asked]

    def _ask(self, requests: Mapping[str, Callable[[], object]]) -> None:
        while True:
            for name, request in requests.items():
                if self._over.wait(0.05):
                    return
                began = time.perf_counter()
                try:
                    request()
                except Exception as error:  # noqa: BLE001 — the test fails by it
                    self.failures.append(error)
                self.seconds[name].append(time.perf_counter() - began)

    def __enter__(self) -> "Visitors":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        for client in self._clients:
            client.close()


def pages_of(client: Client, run_id: int) -> Mapping[str, Callable[[], object]]:
    """What the dashboard's pages ask for."""
    return {
        "runs": client.runs,
        "run": lambda: client.run(run_id),
        "metrics": lambda: client.metrics(run_id, max_points=250),
        "steps": lambda: client.steps(run_id),
        "groups": lambda: client.groups(run_id, sort="-reward_std"),
        "completions": lambda: client.completions(run_id, sort="-reward"),
        "logs": lambda: client.logs(run_id),
        "health": lambda: client.health(run_id),
        "workers": client.workers,
        "catalog": client.catalog,
        "preflight": lambda: client.preflight(GRPO),
        "deletions": client.deletions,
    }


def p95(seconds: list[float]) -> float:
    return max(seconds) if len(seconds) < 20 else quantiles(seconds, n=20, method="inclusive")[-1]


@pytest.mark.parametrize("completions", COUNTS)
def test_deleting_a_large_run_takes_nobodys_lease_and_others_are_answered(tmp_path: Path, completions: int) -> None:
    with Site(tmp_path / "home", lease_seconds=LEASE) as site:
        first = site.backend()
        large = site.client.command(site.client.create_run(GRPO).id, "stop").id
        first.terminate()
        first.wait(timeout=30)
        grow(site.home, large, completions)
        site.backend()
        training = [site.client.create_run(tiny_run(100_000, every=20, seed=seed)).id for seed in range(2)]
        for _ in training:
            site.worker()
        for run_id in training:
            site.wait_for_step(run_id, 5)
        before = [site.client.run(run_id).progress.step for run_id in training]
        with Visitors(site, training[0]) as visitors:
            began = time.monotonic()
            site.client.delete_run(large)
            wait_until(
                lambda: large not in [one.run_id for one in site.client.deletions()], "its rows are gone", patience=1500
            )
            took = time.monotonic() - began
        assert visitors.failures == []
        runs = [site.client.run(run_id) for run_id in training]
        assert [(run.status, run.attempt, run.failures) for run in runs] == [("running", 1, 0)] * 2
        assert all(run.progress.step > step for run, step in zip(runs, before, strict=True))
        report(completions, took, visitors.seconds)


def report(completions: int, took: float, seconds: Mapping[str, list[float]]) -> None:
    """Figures for docs/reliability.md."""
    everything = [one for some in seconds.values() for one in some]
    lines = [f"{completions:,} completions were removed in {took:.0f} s; {len(everything):,} other requests, in ms:"]
    for name, some in {"all": everything, **seconds}.items():
        lines += [f"{name:12} p50 {median(some) * 1e3:5.0f}, p95 {p95(some) * 1e3:5.0f}, most {max(some) * 1e3:5.0f}"]
    print("", *lines, sep="\n")  # noqa: T201
