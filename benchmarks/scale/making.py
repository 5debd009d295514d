"""Makes the database: the backend's own functions store each report, many in one transaction, without HTTP between."""

import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path

from backend import workers
from backend.app import open_services
from backend.clock import Clock
from backend.contract import protocol as p
from backend.contract import records as r
from backend.lifecycle import creation
from backend.queue import attempts, reports
from backend.queue import claim as claims
from backend.services import Services
from backend.settings import Settings
from backend.telemetry import traces
from scale.plan import Plan, RunPlan
from scale.reported import Reporter, config

WORKER = p.WorkerInfo(name="recorder", device="cpu", store="recorded")
AT_ONCE = 50  # steps in one transaction, and prepared beside the one before
LIVE = "live-claim.json"  # in the home: who goes on with the run under way shows the claim's secret
_DONE = "made"


def make(home: Path, plan: Plan) -> float:
    """Make the database in this home, or find it there; the seconds that making it took."""
    stamp = home / _DONE
    if stamp.exists():
        seconds, _, held = stamp.read_text().partition(" ")
        if held == str(plan):
            return float(seconds)
    if home.exists() and any(home.iterdir()):
        raise SystemExit(f"{home} holds something else, or half of a database; choose another --home, or remove it")
    began = time.monotonic()
    services = open_services(Settings(home=home, lease_seconds=3600), Clock())
    with ProcessPoolExecutor(1) as beside:
        for run in plan.run_plans():
            make_run(services, run, beside)
            print(f"\r  {run.name:<10} {time.monotonic() - began:6.0f} s", end="", flush=True)
    print()
    services.database.close()
    seconds = time.monotonic() - began
    stamp.write_text(f"{seconds} {plan}")
    return seconds


def make_run(services: Services, run: RunPlan, beside: ProcessPoolExecutor) -> None:
    """Store all of its reports; one that is not live is finished then."""
    database, at = services.database, services.clock.stamp()
    with database.write() as tx:
        created = creation.create(tx, r.RunCreate.model_validate({"config": config(run), "name": run.name}), None, at)
        workers.seen(tx, WORKER, services.clock.seconds())
        claimed = claims.take(tx, [created], WORKER, None, services.terms(), at)
        assert claimed is not None
        attempts.start(tx, created, p.Start(attempt=claimed.attempt, from_step=0, device="cpu"), services.terms())
    for batch in _batches(run, claimed.attempt, beside):
        with database.write() as tx:
            received = [
                reports.Received(sent, f"{sent.seq:064}", traces.keep(services.settings.home, created, sent))
                for sent in batch
            ]
            reports.store(tx, created, received, services.terms(), services.clock.stamp())
    if run.role == "live":
        (services.settings.home / LIVE).write_text(claimed.model_dump_json())
    else:
        with database.write() as tx:
            done = p.Finish(attempt=claimed.attempt, outcome="finished")
            attempts.finish(tx, created, done, services.terms(), services.clock.stamp())


def _batches(run: RunPlan, attempt: int, beside: ProcessPoolExecutor) -> Iterator[list[p.Report]]:
    """The reports, prepared in the other process while this one stores those before."""
    following = beside.submit(_begin, run, attempt)
    while batch := following.result():
        following = beside.submit(_go_on)
        yield batch


_going: Iterator[p.Report] = iter(())  # of the other process


def _begin(run: RunPlan, attempt: int) -> list[p.Report]:
    global _going
    reporter = Reporter(run, attempt)
    _going = (report for step in range(run.steps) for report in reporter.step(step))
    return _go_on()


def _go_on() -> list[p.Report]:
    return list(islice(_going, AT_ONCE))
