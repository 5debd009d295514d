"""Any order of events: submit, claim, beat, report, finish, fail, command, silence, sweep, restart, against a small model."""

import hashlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from acting import GRPO, group
from drawing import examples
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from serving import SteppedClock
from sqlalchemy import Connection

from backend.app import open_services, sweep_once
from backend.clock import Terms
from backend.contract import protocol as p
from backend.contract import records as r
from backend.contract.config import RUN_CONFIG
from backend.contract.queries import MetricQuery, StepQuery
from backend.errors import Conflict, LeaseLost
from backend.lifecycle import commands, creation
from backend.queue import attempts, claim, reports
from backend.runs import store
from backend.settings import Settings
from backend.telemetry import groups, metrics
from backend.telemetry.summary import recomputed

# Whole pages, or processes that have to die: right, but too slow for `make check`.
pytestmark = pytest.mark.slow

TTL = 30.0
BODY = r.RunCreate(config=RUN_CONFIG.validate_python(GRPO))
ENDS = {"finished": "finished", "stopped": "stopped", "paused": "paused", "released": "queued"}


@dataclass(frozen=True)
class Expected:
    """What the model knows of a run."""

    status: str = "queued"
    requested: str = "nothing"
    attempt: int = 0
    failures: int = 0
    until: float = 0.0
    steps: int = 0  # live steps
    outcome: str | None = None  # of the newest attempt


@dataclass
class Holder:
    """A worker's belief that it holds a run; it may be wrong."""

    run_id: int
    attempt: int
    next_step: int
    seq: int = 0


class Life(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = SteppedClock()
        self.runs: dict[int, Expected] = {}
        self.holders: list[Holder] = []

    @initialize()
    def start(self) -> None:
        self.services = open_services(Settings(home=Path(self.folder.name)), self.clock)

    def teardown(self) -> None:
        self.services.database.close()
        self.folder.cleanup()

    # ---- people

    @rule()
    def submit(self) -> None:
        with self.services.database.write() as tx:
            run_id = creation.create(tx, BODY, None, self.clock.stamp())
        assert run_id not in self.runs
        self.runs[run_id] = Expected()

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), verb=st.sampled_from(["pause", "resume", "stop", "retry"]))
    def command(self, data: st.DataObject, verb: str) -> None:
        run_id = data.draw(st.sampled_from(sorted(self.runs)))
        before = self.runs[run_id]
        after = self.commanded(before, verb)
        try:
            with self.services.database.write() as tx:
                commands.command(tx, run_id, verb, self.clock.stamp())
            assert after is not None
            self.runs[run_id] = after
        except Conflict:
            assert after is None

    @staticmethod
    def commanded(run: Expected, verb: str) -> Expected | None:
        match verb, run.status, run.requested:
            case "pause", "queued", _:
                return replace(run, status="paused")
            case "pause", "running", "nothing" | "pause":
                return replace(run, requested="pause")
            case "resume", "paused", _:
                return replace(run, status="queued")
            case "resume", "running", "pause":
                return replace(run, requested="nothing")
            case "stop", "queued" | "paused", _:
                return replace(run, status="stopped")
            case "stop", "running", requested:
                return replace(run, requested="stop_at_once" if requested in r.STOPS else "stop")
            case "retry", "failed" | "stopped", _:
                return replace(run, status="queued", failures=0)
        return None

    # ---- workers

    @rule()
    def claim(self) -> None:
        ready = [
            run_id
            for run_id, run in sorted(self.runs.items())
            if run.status == "queued" or (self.lost(run) and run.requested == "nothing" and run.failures < 2)
        ]
        worker = p.WorkerInfo(name="w", device="CPU", store="/s")
        with self.services.database.read() as tx:
            among = claim.candidates(tx, worker, ["grpo"], self.services.terms())
        with self.services.database.write() as tx:
            claimed = claim.take(tx, among, worker, None, self.services.terms(), self.clock.stamp())
        if claimed is None:
            assert not ready
            return
        assert claimed.run_id == ready[0]
        run = self.runs[claimed.run_id]
        failures = run.failures + (run.status == "running")
        self.runs[claimed.run_id] = replace(
            run, status="running", attempt=run.attempt + 1, failures=failures, until=self.clock.now + TTL, outcome=None
        )
        assert claimed.attempt == run.attempt + 1, "attempts only rise, by one"
        from_step = run.steps // 2
        with self.services.database.write() as tx:
            begin = p.Start(attempt=claimed.attempt, from_step=from_step, device="CPU")
            attempts.start(tx, claimed.run_id, begin, self.services.terms())
        self.runs[claimed.run_id] = replace(self.runs[claimed.run_id], steps=from_step)
        self.holders.append(Holder(claimed.run_id, claimed.attempt, from_step))

    def lost(self, run: Expected) -> bool:
        return run.status == "running" and run.until < self.clock.now

    def write(self, holder: Holder, act: Callable[[Connection, Terms], object], *, again: str | None = None) -> bool:
        """Do something as a holder: it must work exactly if the attempt is the current one of a running run."""
        run = self.runs[holder.run_id]
        holds = run.status == "running" and run.attempt == holder.attempt
        repeated = again is not None and run.attempt == holder.attempt and run.outcome == again
        try:
            with self.services.database.write() as tx:
                act(tx, self.services.terms())
        except LeaseLost:
            assert not holds
            assert not repeated
            return False
        assert holds or repeated
        if holds:
            self.runs[holder.run_id] = replace(run, until=self.clock.now + TTL)
        return holds

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def beat(self, data: st.DataObject) -> None:
        holder = data.draw(st.sampled_from(self.holders))

        def act(tx: Connection, terms: Terms) -> None:
            sent = p.Heartbeat(attempt=holder.attempt, worker="w")
            reply = attempts.heartbeat(tx, holder.run_id, sent, terms, self.clock.stamp())
            assert reply.requested == self.runs[holder.run_id].requested

        self.write(holder, act)

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), twice=st.booleans())
    def report(self, data: st.DataObject, twice: bool) -> None:
        holder = data.draw(st.sampled_from(self.holders))
        value = float(100 * holder.attempt + holder.next_step)
        sent = p.Report(
            attempt=holder.attempt, seq=holder.seq, step=holder.next_step, metrics={"reward": value}, groups=[group()]
        )
        digest = hashlib.sha256(sent.model_dump_json().encode()).hexdigest()

        def act(tx: Connection, terms: Terms) -> None:
            reports.store(tx, holder.run_id, [reports.Received(sent, digest)], terms, self.clock.stamp())

        if self.write(holder, act):
            if twice:
                self.write(holder, act)
            holder.next_step += 1
            holder.seq += 1
            self.runs[holder.run_id] = replace(self.runs[holder.run_id], steps=holder.next_step)

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), outcome=st.sampled_from(sorted(ENDS)))
    def finish(self, data: st.DataObject, outcome: p.Outcome) -> None:
        holder = data.draw(st.sampled_from(self.holders))
        run = self.runs[holder.run_id]
        sent = p.Finish(attempt=holder.attempt, outcome=outcome)

        def act(tx: Connection, terms: Terms) -> None:
            attempts.finish(tx, holder.run_id, sent, terms, self.clock.stamp())

        if self.write(holder, act, again=outcome):
            status = ENDS[outcome]
            if outcome in ("paused", "released") and run.requested in r.STOPS:
                status = "stopped"
            elif outcome in ("paused", "released"):
                status = "paused" if run.requested == "pause" else "queued"
            self.runs[holder.run_id] = replace(run, status=status, requested="nothing", outcome=outcome)

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), retryable=st.booleans())
    def fail(self, data: st.DataObject, retryable: bool) -> None:
        holder = data.draw(st.sampled_from(self.holders))
        run = self.runs[holder.run_id]

        error = r.RunError(code="crash", message="It crashed.")
        sent = p.Fail(attempt=holder.attempt, error=error, retryable=retryable)

        def act(tx: Connection, terms: Terms) -> None:
            attempts.fail(tx, holder.run_id, sent, terms, self.clock.stamp())

        if self.write(holder, act, again="failed"):
            again = "stopped" if run.requested in r.STOPS else {"nothing": "queued", "pause": "paused"}[run.requested]
            status = again if retryable and run.failures < 2 else "failed"
            self.runs[holder.run_id] = replace(
                run, status=status, requested="nothing", failures=run.failures + 1, outcome="failed"
            )

    # ---- time and the backend

    @rule(seconds=st.sampled_from([1.0, 20.0, 31.0]))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule()
    def sweep(self) -> None:
        sweep_once(self.services)
        for run_id, run in self.runs.items():
            if self.lost(run):
                ends = {"pause": "paused", "nothing": "failed" if run.failures >= 2 else "running"}
                status = ends.get(run.requested, "stopped")
                if status != "running":
                    self.runs[run_id] = replace(run, status=status, requested="nothing", failures=run.failures + 1)

    @rule()
    def restart(self) -> None:
        self.services.database.close()
        self.services = open_services(self.services.settings, self.clock)
        for run_id, run in self.runs.items():
            if run.status == "running":
                self.runs[run_id] = replace(run, until=self.clock.now + TTL)

    @invariant()
    def the_backend_and_the_model_agree(self) -> None:
        with self.services.database.read() as tx:
            for run_id, expected in self.runs.items():
                run = store.get(tx, run_id)
                found = (run.status, run.requested, run.attempt, run.failures, run.progress.step)
                wanted = (expected.status, expected.requested, expected.attempt, expected.failures, expected.steps)
                assert found == wanted
                series = metrics.read(tx, run_id, MetricQuery()).series.get("reward")
                assert (series.step if series else []) == list(range(expected.steps)), "no gap, nothing twice"
                assert [one.step for one in groups.steps(tx, run_id, StepQuery()).items] == list(range(expected.steps))
                assert run.summary == recomputed(tx, run_id)["summary"]


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=examples(12), stateful_step_count=30, suppress_health_check=list(HealthCheck))
