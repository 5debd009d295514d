"""Random kills for hours: `python tests/faults/soak.py --kills 500`, which `make soak` calls.

A backend, a worker that trains, and a second worker (in this process) whose acknowledged reports are noted, on one home.
Again and again, at a random moment, SIGKILL ends backend, worker or both. After each kill the database must be intact, and no row that
was ever seen may be gone, changed or doubled; each run that ends must have the weights of one that nobody disturbed.

It goes in pieces, each in a home of its own; the counts of whole pieces stand in <home>/soak.json, from where the next call goes on.
"""

import argparse
import json
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path

import httpx
from acting import Actor, group
from processes import Site, kill, tiny_run, wait_until

from backend.contract.client import ApiError, Unreachable
from backend.contract.protocol import LogLine

STEPS = 40
KINDS: Mapping[str, Mapping[str, object]] = {
    "full weights": {},
    "LoRA": {"model": {"lora": {"rank": 4}}},
    "dynamic sampling": {"algorithm": {"dead_groups": "resample"}},
}
# What is read of each table, by its key: rows are written once and never change.
ROWS = {
    "report": "SELECT run_id, attempt, seq, body_sha256 FROM report",
    "metric": "SELECT run_id, attempt, step, name, value FROM metric",
    "group": 'SELECT run_id, attempt, step, "index", state, rewards, advantages, prompt_id FROM prompt_group',
    "completion": """SELECT c.run_id, c.attempt, c.step, g."index", c."index", c.text, c.reward, c.advantage
                       FROM completion c JOIN prompt_group g ON g.id = c.group_id""",
    "checkpoint": "SELECT run_id, attempt, step, sha256 FROM checkpoint",
    "log": "SELECT run_id, attempt, message FROM log_line",  # the one table here whose own keys refuse no second one
}
KEYS = {"report": 3, "metric": 4, "group": 4, "completion": 5, "checkpoint": 3, "log": 3}
VICTIMS = ("backend", "worker", "both")


class Ledger:
    """Every row that was ever seen in the database, which must be there ever after, once and as it was."""

    def __init__(self) -> None:
        self.rows: dict[tuple[object, ...], tuple[object, ...]] = {}

    def check(self, database: Path) -> None:
        """Raises AssertionError for a damaged database and for a row that is gone, changed or doubled."""
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)) as opened:
            opened.execute("BEGIN")
            assert opened.execute("PRAGMA integrity_check").fetchone() == ("ok",), "the database is damaged"
            assert opened.execute("PRAGMA foreign_key_check").fetchone() is None
            found: dict[tuple[object, ...], tuple[object, ...]] = {}
            for name, query in ROWS.items():
                for row in opened.execute(query):
                    key = (name, *row[: KEYS[name]])
                    assert key not in found, f"doubled: {key}"
                    found[key] = row[KEYS[name] :]
        gone = [key for key, row in self.rows.items() if found.get(key) != row]
        assert not gone, f"{len(gone)} rows are gone or changed, the first: {gone[0]}"
        self.rows = found


class Reporter:
    """A worker without a model that reports step after step; what was acknowledged is in `acknowledged`."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._actor = Actor(site.client, "reporter", store="/reporter")
        # only a worker with this engine is offered the run: the one that trains is not
        self._actor.info = self._actor.info.model_copy(update={"engines": ["vllm"]})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._report, daemon=True)
        self.acknowledged: list[int] = []
        self.failure: str | None = None
        config = {"kind": "grpo", "budget": {"steps": 1_000_000}, "sampling": {"engine": "vllm"}}
        site.client.create_run(config, name="reporter")
        self._actor.begin()
        self.run_id = self._actor.run_id

    def start(self) -> None:
        """Report from now on."""
        self._thread.start()

    def close(self) -> None:
        """Report no more. Raises AssertionError if the reports were refused meanwhile."""
        self._stop.set()
        self._thread.join(timeout=60)
        assert self.failure is None, self.failure

    def _report(self) -> None:
        step = 0
        while not self._stop.wait(0.25):
            try:
                said = LogLine(message=f"step {step}")
                self._actor.report(step, metrics={"reward": float(step)}, groups=[group(0), group(1)], logs=[said])
            except (Unreachable, httpx.TransportError):
                continue  # sent again, with the same number, as a worker's spool does
            except ApiError as error:
                if error.status in (503, 507):
                    continue
                self.failure = f"report {step} was refused: {error.code}: {error}"
                return
            self.acknowledged.append(step)
            step += 1


def kills_in(counts: Mapping[str, int]) -> int:
    """How many kills were counted, of all kinds."""
    return sum(counts.get(f"kills of {victim}", 0) for victim in VICTIMS)


class Soak:
    """One home, its processes, and what was counted so far."""

    def __init__(self, home: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.site = Site(home, max_failures=100)
        self.counts: Counter[str] = Counter()
        self.ledger = Ledger()
        self.backend = self.site.backend()
        self.worker: subprocess.Popen[bytes] = self.site.worker()
        self.expected = {kind: self._undisturbed(kind) for kind in KINDS}
        self.reporter = Reporter(self.site)
        self.kinds = self._endlessly()
        self.kind, self.run_id = self._next_run()
        self.reporter.start()

    def _undisturbed(self, kind: str) -> Mapping[str, str]:
        run = self.site.client.create_run(tiny_run(STEPS, every=4, **KINDS[kind]), name=f"{kind}, undisturbed")
        assert self.site.wait_for_end(run.id).status == "finished"
        return self._weights(run.id)

    def _weights(self, run_id: int) -> Mapping[str, str]:
        """SHA-256 of each file of tensors in the last checkpoint."""
        last = max(self.site.client.checkpoints(run_id), key=lambda one: one.step)
        assert last.step == STEPS
        manifest = json.loads((self.site.home / "checkpoints" / last.path / "manifest.json").read_text())
        return {name: file["sha256"] for name, file in manifest["files"].items() if name.endswith(".safetensors")}

    def _endlessly(self) -> Iterator[str]:
        while True:
            yield from KINDS

    def _next_run(self) -> tuple[str, int]:
        kind = next(self.kinds)
        return kind, self.site.client.create_run(tiny_run(STEPS, every=4, **KINDS[kind]), name=kind).id

    def kill_once(self) -> None:
        """Wait for a random moment, kill, look at everything, and start again what was killed."""
        self._wait_for_a_step()
        time.sleep(self.random.uniform(0.05, 6.0))
        victim = self.random.choices(VICTIMS, (45, 45, 10))[0]
        for name in ("backend", "worker") if victim == "both" else (victim,):
            process: subprocess.Popen[bytes] = getattr(self, name)
            assert process.poll() is None, f"the {name} ended by itself with exit code {process.returncode}"
            kill(process)
        self.ledger.check(self.site.home / "groupscope.db")
        if victim in ("worker", "both"):
            self.worker = self.site.worker()
        if victim in ("backend", "both"):
            self.backend = self.site.start_backend()  # not waited for: it may be killed while it starts
        self.counts[f"kills of {victim}"] += 1
        with suppress(Unreachable, httpx.TransportError):
            if self.site.client.run(self.run_id).status != "running" and self._ended():
                self.kind, self.run_id = self._next_run()

    def _wait_for_a_step(self) -> None:
        """However long a worker takes to start: so most kills hit one that trains. One kill in four comes at any time."""
        if self.random.random() < 0.25:
            return
        before = self._reports()
        wait_until(
            lambda: self._reports() > before or self.site.client.run(self.run_id).status != "running",
            f"run {self.run_id} goes on",
        )

    def _reports(self) -> int:
        with closing(
            sqlite3.connect(f"file:{self.site.home / 'groupscope.db'}?mode=ro", uri=True, timeout=30)
        ) as opened:
            return int(opened.execute("SELECT count(*) FROM report WHERE run_id = ?", (self.run_id,)).fetchone()[0])

    def _ended(self) -> bool:
        """Whether the run is over; then it is as if nobody had disturbed it."""
        run = self.site.client.run(self.run_id)
        if run.status not in ("finished", "failed", "stopped"):
            return False
        assert run.status == "finished", f"run {run.id} {run.status}: {run.error}"
        assert self.site.reward(run.id).step == list(range(STEPS))
        steps = self.site.client.steps(run.id)
        assert [sum(n for state, n in one.states.items() if state not in ("filtered", "probe")) for one in steps] == [
            2
        ] * STEPS
        assert self._weights(run.id) == self.expected[self.kind], f"run {run.id} ({self.kind}) has other weights"
        self.counts["runs with equal weights"] += 1
        self.counts["attempts"] += run.attempt
        return True

    def finish(self) -> None:
        """Let the last run come to its end, and hold everything against what was acknowledged."""
        wait_until(self._ended, f"run {self.run_id} ends", patience=300)
        self.reporter.close()
        site, acknowledged = self.site, self.reporter.acknowledged
        stored = site.reward(self.reporter.run_id).step
        assert stored == list(range(len(stored))), "the reporter's steps are contiguous"
        assert acknowledged == stored[: len(acknowledged)], "an acknowledged report is lost"
        self.counts["acknowledged reports"] += len(acknowledged)
        self.ledger.check(site.home / "groupscope.db")
        self.counts["rows compared"] = len(self.ledger.rows)
        spools = [path for path in (site.home / "spool").rglob("*") if path.is_file() and path.stat().st_size]
        assert not spools, f"left in the spool: {spools}"

    def close(self) -> None:
        """End every process."""
        self.site.close()


def soak(home: Path, kills: int, seed: int, say: Callable[[str], None]) -> Counter[str]:
    """One piece: a fresh home, the given number of kills, and everything compared at the end. Raises AssertionError."""
    one = Soak(home, seed)
    try:
        for number in range(kills):
            one.kill_once()
            say(f"kill {number + 1} of {kills}: {dict(one.counts)}")
        one.finish()
    finally:
        one.close()
    return one.counts


def commit() -> str:
    """Which code this is."""
    asked = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def main() -> int:
    """Kill until there were as many as were asked for, in pieces; the counts of whole pieces are kept."""
    parser = argparse.ArgumentParser(description="Random kills of backend and worker.")
    parser.add_argument("--kills", type=int, default=500, help="in all, those of earlier calls among them")
    parser.add_argument("--piece", type=int, default=25, help="kills in one home, before everything is compared")
    parser.add_argument("--home", type=Path, default=Path(".soak"), help="where the counts and a failed piece are kept")
    given = parser.parse_args()
    given.home.mkdir(parents=True, exist_ok=True)
    state = given.home / "soak.json"
    counts = Counter[str](json.loads(state.read_text()) if state.exists() else {})
    while (left := given.kills - kills_in(counts)) > 0:
        seed, started = time.time_ns(), time.monotonic()
        home = given.home / f"piece-{seed}"
        try:
            piece = soak(home, min(left, given.piece), seed, print)
        except AssertionError as error:
            print(f"FAILED after {kills_in(counts)} kills: {error}\nall of it is kept in {home}", file=sys.stderr)
            return 1
        counts += piece
        counts[f"kills at commit {commit()}"] += kills_in(piece)
        counts["seconds"] += round(time.monotonic() - started)
        state.write_text(json.dumps(counts, indent=1))
        shutil.rmtree(home)
        print(f"{kills_in(counts)} of {given.kills} kills: {dict(counts)}", flush=True)
    print(f"nothing lost, doubled or damaged: {dict(counts)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
