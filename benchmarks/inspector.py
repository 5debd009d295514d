"""Is it still fast with a hundred runs? Makes a large database, and measures requests, views, a run under way, and memory.

    python benchmarks/inspector.py                               all but memory (make bench-inspector): half an hour on two cores
    python benchmarks/inspector.py --home /data/scale            keeps the database there: 7 minutes the next time
    python benchmarks/inspector.py --only views live             some parts; the others keep what was measured before
    python benchmarks/inspector.py --only memory --minutes 30    somebody watches a run for so long
    python benchmarks/inspector.py --write                       and put the tables into docs/benchmarks.md
    python benchmarks/inspector.py --trial --out /tmp/trial.json    a trial of the benchmark itself, with a small database

docs/benchmarks.md explains it all.
"""

import argparse
import sqlite3
import tempfile
import time
from pathlib import Path

from results.page import MEASURED, PAGE, command_line, show_tables, stack, where
from scale.making import make
from scale.plan import FULL, TRIAL, Plan
from scale.records import AtScale, Made, tables
from scale.requests import measure_api
from scale.site import LEASE, Site, contents, site
from scale.views import measure_live, measure_memory, measure_views

KEPT = MEASURED / "inspector.json"
STACK = ("groupscope", "fastapi", "sqlalchemy", "streamlit", "altair")
PARTS = ("api", "views", "live", "memory")


def measure(running: Site, part: str, plan: Plan, arguments: argparse.Namespace) -> dict[str, object]:
    """One part, by the name of its record."""
    known, trial = contents(running.client), arguments.trial
    print(part, flush=True)
    if part == "api":
        return {part: measure_api(running, known, 2 if trial else 100, lambda: _read_once(running.database))}
    if part == "views":
        return {part: measure_views(running, known, 1 if trial else 5, uncounted=0 if trial else 1)}
    if part == "live":
        return {part: measure_live(running, known, plan, 2 if trial else 20)}
    return {part: measure_memory(running, known, plan, arguments.minutes)}


def made(home: Path, seconds: float) -> Made:
    """What the database holds."""
    with sqlite3.connect(f"file:{home / 'groupscope.db'}?mode=ro", uri=True) as database:
        runs, completions, metrics = (
            database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("run", "completion", "metric")
        )
    traces = sum(path.stat().st_size for path in (home / "traces").rglob("*.parquet"))
    size = (home / "groupscope.db").stat().st_size
    return Made(seconds=seconds, database=size, traces=traces, runs=runs, completions=completions, metrics=metrics)


def _read_once(file: Path) -> None:
    """What is measured is a backend in use, not the disk: the file lies in the page cache, which a host may take back."""
    with file.open("rb") as whole:
        while whole.read(1 << 24):
            pass


def main() -> None:
    parser = command_line(__doc__, kept=KEPT, page=PAGE)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS[:3], metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--home", type=Path, help="where the database is made and kept; else a temporary one")
    parser.add_argument("--minutes", type=float, default=30.0, help="of watching, for the part memory")
    parser.add_argument("--trial", action="store_true", help="a small database, few requests; its figures mean nothing")
    arguments = parser.parse_args()
    plan, began = TRIAL if arguments.trial else FULL, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="groupscope-scale-") as temporary:
        home = arguments.home or Path(temporary)
        home.mkdir(parents=True, exist_ok=True)
        print(f"the database, in {home}", flush=True)
        seconds = make(home, plan)
        versions = {name: f"{name} {number}" for name, number in stack(*STACK).items()}
        now = {"where": where() | versions, "made": made(home, seconds)}
        results = AtScale.read(arguments.out).model_copy(update=now)
        with site(home, dashboard=True, LEASE_SECONDS=str(LEASE)) as running:
            for part in arguments.only:
                _read_once(running.database)
                results = results.model_copy(update=measure(running, part, plan, arguments))
                results.write(arguments.out)
    show_tables(tables(results), arguments, began, "measured at scale")


if __name__ == "__main__":
    main()
