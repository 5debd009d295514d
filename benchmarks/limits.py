"""How far does one backend reach? Many runs, many workers, many groups: what is measured here, and what follows from it.

    python benchmarks/limits.py                              all parts (half an hour on two cores)
    python benchmarks/limits.py --only workers               some; the others keep what was measured before
    python benchmarks/limits.py --write                      and put the tables into docs/scale.md
    python benchmarks/limits.py --trial --out /tmp/trial.json    a trial of the benchmark itself; its figures mean nothing

docs/scale.md says what is measured and what is extrapolated.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from math import log
from pathlib import Path
from statistics import linear_regression, median, quantiles
from typing import NamedTuple

import httpx
from pydantic import BaseModel
from results.page import MEASURED, ROOT, Kept, command_line, replace_tables, stack, table, where
from scale.making import WORKER, make_run
from scale.plan import RunPlan
from scale.reported import Reporter, config
from scale.requests import measure_api
from scale.site import TOKEN, contents, site

from backend import workers
from backend.app import open_services
from backend.clock import Clock
from backend.contract import protocol as p
from backend.contract import records as r
from backend.contract.client import Client
from backend.lifecycle import creation
from backend.operations.backup import back_up
from backend.queue import attempts
from backend.queue import claim as claims
from backend.settings import Settings
from worker.lease import LONGEST_INTERVAL

PAGE, KEPT = ROOT / "docs" / "scale.md", MEASURED / "limits.json"
PARTS = ("runs", "workers", "groups")
BUSY = RunPlan("live", 0, 1_000_000, 1, 16, 8, 200, 1_000_000, 20_000)
"""A run that reports a step of 16 × 8 completions each time."""
TERABYTE = 1e12


class Cost(BaseModel):
    """What one kind of request costs the backend."""

    name: str
    cpu: float  # seconds of the backend's processor
    p95: float  # seconds until the answer, one at a time


class ManyRuns(BaseModel):
    """A database of `runs`: half are finished, half wait for a worker that does not come."""

    runs: int
    database: int  # bytes
    p95: dict[str, float]  # by request


class ManyWorkers(BaseModel):
    """A number of workers that ask for work, as often as the backend says."""

    workers: int
    seconds: float
    claims: int
    p95: float
    cpu: float  # the backend's, as a share of one core


class ManyGroups(BaseModel):
    """A database of equal runs with all their groups."""

    runs: int
    completions: int  # of all runs
    database: int  # bytes
    traces: int
    start: float  # seconds until the backend answers
    backup: float  # seconds
    p95: dict[str, float]  # of what a page asks of one run


class Limits(Kept):
    """All parts; one that was not measured is None."""

    where: dict[str, str] = {}
    runs: list[ManyRuns] | None = None
    costs: list[Cost] | None = None
    workers: list[ManyWorkers] | None = None
    groups: list[ManyGroups] | None = None


class Backend(NamedTuple):
    """One under measurement."""

    client: Client
    url: str
    pid: int

    def cpu(self) -> float:
        """Seconds of a processor that it has used."""
        user, system = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@contextmanager
def backend_on(home: Path, **settings: str) -> Iterator[Backend]:
    """A backend of its own process."""
    with site(home, **settings) as running:
        yield Backend(running.client, running.backend_url, running.processes["backend"].pid)


def timed(times: int, action: Callable[[int], object]) -> list[float]:
    """Seconds of each call, one after the other."""
    seconds = []
    for number in range(times):
        began = time.perf_counter()
        action(number)
        seconds.append(time.perf_counter() - began)
    return seconds


def p95_of(seconds: list[float]) -> float:
    """Of 100 calls 95 took no longer."""
    return quantiles(seconds, n=20, method="inclusive")[-1]


def many_runs(folder: Path, sizes: list[int], times: int) -> list[ManyRuns]:
    """One database that grows: half of its runs are finished, half wait."""
    services = open_services(Settings(home=folder, lease_seconds=3600), Clock())
    measured, made = [], 0
    stored = config(replace(BUSY, role="short"))
    other = {**stored, "compute": {"processes": 1024}}  # that no worker here offers
    for size in sizes:
        at = services.clock.stamp()
        for number in range(made, size):
            with services.database.write() as tx:
                body = r.RunCreate.model_validate(
                    {"config": other if number % 2 else stored, "name": f"run {number}", "tags": [f"tag-{number % 20}"]}
                )
                created = creation.create(tx, body, None, at)
                if not number % 2:
                    workers.seen(tx, WORKER, services.clock.seconds())
                    claimed = claims.take(tx, [created], WORKER, None, services.terms(), at)
                    assert claimed is not None
                    done = p.Finish(attempt=claimed.attempt, outcome="finished")
                    attempts.finish(tx, created, done, services.terms(), services.clock.stamp())
        made = size
        with backend_on(folder, LEASE_SECONDS="3600") as backend:
            found = _asked_of_runs(backend.client, size, times)
        database = (folder / "groupscope.db").stat().st_size
        measured.append(ManyRuns(runs=size, database=database, p95=found))
        print(f"  {size:,} runs: {found}", flush=True)
    services.database.close()
    return measured


def _asked_of_runs(client: Client, size: int, times: int) -> dict[str, float]:
    """The p95 of each request, in seconds."""
    requests: dict[str, Callable[[int], object]] = {
        "the newest 50 runs": lambda _: client.runs(limit=50),
        "50 runs in the middle": lambda _: client.runs(limit=50, cursor=str(size // 2)),
        "runs by a word in their name": lambda number: client.runs(search=f"run {number}"),
        "finished runs with a tag": lambda _: client.runs(status="finished", tag="tag-4"),
        "a claim that finds nothing": lambda _: client.ask(p.ClaimRequest(worker=WORKER)).claim,
    }
    return {name: p95_of(timed(times, request)) for name, request in requests.items()}


def costs(home: Path, times: int) -> list[Cost]:
    """Of what workers send."""
    with backend_on(home, LEASE_SECONDS="3600") as backend:
        client = backend.client
        run = client.create_run(config(BUSY))
        claim = client.ask(p.ClaimRequest(worker=WORKER)).claim
        assert claim is not None
        reporter = Reporter(BUSY, claim.attempt)
        reports = [report for step in range(times) for report in reporter.step(step)]
        client.start(run.id, p.Start(attempt=claim.attempt, from_step=0, device="cpu"))
        kinds: dict[str, tuple[int, Callable[[int], object]]] = {
            "a claim that finds nothing": (
                times,
                lambda number: client.ask(p.ClaimRequest(worker=_worker(number % 50))).claim,
            ),
            "a heartbeat": (times, lambda number: client.heartbeat(run.id, _beat(claim.attempt, number))),
            "a report of 16 × 8 completions": (len(reports), lambda number: client.report(run.id, reports[number])),
        }
        measured = []
        for name, (count, send) in kinds.items():
            before = backend.cpu()
            seconds = timed(count, send)
            cost = Cost(name=name, cpu=(backend.cpu() - before) / count, p95=p95_of(seconds))
            measured.append(cost)
            print(f"  {name}: {cost.cpu * 1000:.2f} ms of processor, p95 {cost.p95 * 1000:.1f} ms", flush=True)
        return measured


def _beat(attempt: int, done: int) -> p.Heartbeat:
    progress = r.Progress(step=1, total_steps=1_000, phase="sampling", done=done, total=1_000)
    return p.Heartbeat(attempt=attempt, worker=WORKER.name, progress=progress)


def _worker(number: int) -> p.WorkerInfo:
    return WORKER.model_copy(update={"name": f"machine-{number}"})


def many_workers(home: Path, sizes: list[int], seconds: float) -> list[ManyWorkers]:
    """Each asks for work again and again, and nothing waits."""
    measured = []
    for size in sizes:
        with backend_on(home) as backend:
            before = backend.cpu()
            asked = asyncio.run(_asking(backend.url, size, seconds))
            cpu = (backend.cpu() - before) / seconds
        # in the first seconds the backend does not know yet how many there are
        settled = [took for began, took in asked if began > seconds / 3]
        measured.append(ManyWorkers(workers=size, seconds=seconds, claims=len(asked), p95=p95_of(settled), cpu=cpu))
        print(f"  {measured[-1]}", flush=True)
    return measured


async def _asking(url: str, count: int, seconds: float) -> list[tuple[float, float]]:
    """When each claim began, and how long it took."""
    asked: list[tuple[float, float]] = []
    began = time.monotonic()

    async def one(http: httpx.AsyncClient, number: int) -> None:
        body = p.ClaimRequest(worker=_worker(number), protocol=p.PROTOCOL).model_dump(mode="json")
        await asyncio.sleep(number / count * min(5.0, seconds / 4))
        while (since := time.monotonic() - began) < seconds:
            answer = await http.post("/api/v1/worker/claim", json=body)
            answer.raise_for_status()
            asked.append((since, time.monotonic() - began - since))
            await asyncio.sleep(p.ClaimReply.model_validate_json(answer.content).ask_again_seconds)

    limits = httpx.Limits(max_connections=count, max_keepalive_connections=count)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, limits=limits, timeout=60) as http:
        await asyncio.gather(*(one(http, number) for number in range(count)))
    return asked


def many_groups(folder: Path, sizes: list[int], steps: int, times: int) -> list[ManyGroups]:
    """One database that grows by runs of `steps` steps, each of 64 × 8 completions."""
    home, measured, made = folder / "home", [], 0
    services = open_services(Settings(home=home, lease_seconds=3600), Clock())
    large = replace(BUSY, role="large", steps=steps, groups=64, prompts=2_000, total_steps=steps)
    with ProcessPoolExecutor(1) as beside:
        for role in ("long", "live"):
            make_run(services, replace(BUSY, role=role, steps=10), beside)
        for size in sizes:
            for seed in range(made, size):
                make_run(services, replace(large, seed=seed), beside)
            made, began = size, time.monotonic()
            with site(home, LEASE_SECONDS="3600") as running:
                start = time.monotonic() - began
                routes = measure_api(running, contents(running.client), times, lambda: None)
            began = time.monotonic()
            back_up(home, folder / "backup.tar", lambda _: None)
            backup = time.monotonic() - began
            (folder / "backup.tar").unlink()
            measured.append(
                ManyGroups(
                    runs=size,
                    completions=size * steps * large.groups * large.group_size,
                    database=(home / "groupscope.db").stat().st_size,
                    traces=sum(path.stat().st_size for path in (home / "traces").rglob("*.parquet")),
                    start=start,
                    backup=backup,
                    p95={route.name: route.p95 for route in routes},
                )
            )
            print(f"  {size} runs of {steps:,} steps: backup {backup:.1f} s", flush=True)
    services.database.close()
    return measured


def extrapolated(sizes: list[float], values: list[float], at: float) -> float:
    """The value at a size on the line through what was measured, by least squares; never below the largest measured."""
    slope, intercept = linear_regression(sizes, values)
    return max(intercept + slope * at, *values)


def tables(measured: Limits) -> str:
    parts = [
        *([_runs(measured.runs)] if measured.runs else []),
        *([_workers(measured.costs, measured.workers)] if measured.costs and measured.workers else []),
        *([_groups(measured.groups)] if measured.groups else []),
    ]
    return "\n\n".join([*parts, f"Measured on {', '.join(measured.where.values())}."])


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.1f} ms" if seconds < 10 else f"{seconds:,.0f} s"


def _runs(measured: list[ManyRuns]) -> str:
    sizes = [float(one.runs) for one in measured]
    header = ["p95 of a request", *(f"{one.runs:,} runs, measured" for one in measured), "100,000 runs, extrapolated"]
    rows = []
    for name in measured[0].p95:
        values = [one.p95[name] for one in measured]
        rows.append([name, *map(_ms, values), _ms(extrapolated(sizes, values, 100_000))])
    bytes_per_run = measured[-1].database / measured[-1].runs
    rows.append(
        ["the database", *(f"{one.database / 1e6:,.0f} MB" for one in measured), f"{bytes_per_run / 10:,.0f} MB"]
    )
    return (
        f"### Runs\n\nHalf of the runs are finished, half wait for a worker that nobody has.\n\n{table(header, rows)}"
    )


def _workers(costs: list[Cost], measured: list[ManyWorkers]) -> str:
    _, beat, report = (one.cpu for one in costs)
    rows = [[one.name, f"{one.cpu * 1000:.2f} ms", _ms(one.p95), f"{1 / one.cpu:,.0f}"] for one in costs]
    header = [
        "a worker sends (measured)",
        "processor time",
        "p95, one at a time",
        "a second, on one core (extrapolated)",
    ]
    asking = [
        [f"{one.workers:,}", f"{one.claims / one.seconds:,.0f}", _ms(one.p95), f"{one.cpu:.0%}"] for one in measured
    ]
    busy = [
        [f"{step:g} s", f"{1 / (beat / LONGEST_INTERVAL + report / step):,.0f}"] for step in (1.0, 10.0, 60.0, 600.0)
    ]
    return "\n\n".join(
        [
            "### Workers",
            table(header, rows),
            "Workers that find nothing, all asking at once (measured):",
            table(["workers", "claims a second", "p95 of a claim", "share of one core"], asking),
            f"Workers that train, until they fill one core of the backend (extrapolated: 1 / (heartbeat / {LONGEST_INTERVAL:g} s + report / step)):",
            table(["a step of 16 × 8 takes", "workers"], busy),
        ]
    )


def _groups(measured: list[ManyGroups]) -> str:
    sizes = [float(one.database + one.traces) for one in measured]
    each = sizes[-1] / measured[-1].completions
    header = ["", *(f"{one.completions:,} completions, measured" for one in measured), "1 TB, extrapolated"]
    whole: dict[str, list[float]] = {
        "until the backend answers": [one.start for one in measured],
        "a backup": [one.backup for one in measured],
    }
    rows = [
        ["runs", *(str(one.runs) for one in measured), f"{TERABYTE / sizes[-1] * measured[-1].runs:,.0f}"],
        ["database", *(f"{one.database / 1e9:.2f} GB" for one in measured), ""],
        ["token traces", *(f"{one.traces / 1e9:.2f} GB" for one in measured), ""],
        *(
            [name, *(f"{one:.1f} s" for one in values), f"{extrapolated(sizes, values, TERABYTE) / 60:,.0f} minutes"]
            for name, values in whole.items()
        ),
    ]
    last = measured[-1].p95
    taller = log(TERABYTE) / log(sizes[-1])
    pages = [
        [f"p95: {name}", *(_ms(one.p95[name]) for one in measured), _ms(last[name] * taller)]
        for name in sorted(last, key=lambda name: -last[name])[:6]
    ]
    grown = median(last[name] / measured[0].p95[name] for name in last)
    text = (
        f"All in one database; a completion of 20 to 200 tokens takes {each:,.0f} bytes with its share of the traces, so 1 TB are "
        f"{TERABYTE / each:,.0f} completions. The six slowest of the {len(last)} requests of a run's pages; the median request takes "
        f"{grown:.2f} times as long with {measured[-1].runs} such runs as with {measured[0].runs}."
    )
    return f"### Groups\n\n{text}\n\n{table(header, [*rows, *pages])}"


def main() -> None:
    parser = command_line(__doc__, kept=KEPT)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.relative_to(ROOT)}")
    parser.add_argument("--trial", action="store_true", help="small numbers, whose figures mean nothing")
    arguments = parser.parse_args()
    trial, began = arguments.trial, time.monotonic()
    results = Limits.read(arguments.out)
    found: dict[str, object] = {
        "where": where() | {name: f"{name} {one}" for name, one in stack("fastapi", "sqlalchemy").items()}
    }
    with tempfile.TemporaryDirectory(prefix="groupscope-limits-") as temporary:
        for part in arguments.only:
            print(part, flush=True)
            home = Path(temporary) / part
            home.mkdir()
            if part == "runs":
                found["runs"] = many_runs(home, [20, 40] if trial else [1_000, 3_000, 10_000], 3 if trial else 50)
            elif part == "workers":
                found["costs"] = costs(home, 5 if trial else 300)
                found["workers"] = many_workers(home, [3, 6] if trial else [10, 100, 1_000], 3.0 if trial else 45.0)
            else:
                found["groups"] = many_groups(home, [1, 2], 5, 2) if trial else many_groups(home, [1, 3, 9], 100, 20)
            results = results.model_copy(update=found)
            results.write(arguments.out)
    text = tables(results)
    print(f"\n{text}\n\nin {(time.monotonic() - began) / 60:.1f} minutes; kept in {arguments.out}")
    if arguments.write:
        replace_tables(PAGE, text, "limits")


if __name__ == "__main__":
    main()
