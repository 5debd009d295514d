"""How far several runs are, in words and seconds."""

from datetime import UTC, datetime, timedelta

import pytest

from backend.contract.records import Progress, Run, RunError, Status
from dashboard.comparison.selection import how_far, runs_and_time, seconds_left

START = datetime(2026, 1, 1, tzinfo=UTC)


def run(status: Status, step: int = 0, *, took: float | None = None, eta: float | None = None) -> Run:
    return Run(
        id=1,
        name="x",
        kind="grpo",
        status=status,
        config={},
        progress=Progress(step=step, total_steps=100, eta_seconds=eta),
        attempt=1,
        failures=0,
        error=RunError(code="x", message="x") if status == "failed" else None,
        created_at=START,
        started_at=START,
        finished_at=START + timedelta(days=2) if took else None,  # it was paused for two days
        trained_seconds=took,
    )


def test_the_rest_takes_as_long_a_step_as_what_has_finished_without_its_pauses() -> None:
    runs = [run("finished", 100, took=60), run("finished", 100, took=100), run("queued"), run("queued")]
    assert seconds_left(runs) == pytest.approx(160)
    assert how_far(runs) == "2 of 4 finished · about 3 min left"


def test_two_workers_share_what_is_left() -> None:
    runs = [run("finished", 100, took=100), run("running", 50), run("running", 50), run("queued")]
    assert seconds_left(runs) == pytest.approx(100)
    assert how_far(runs) == "1 of 4 finished · 2 running · about 2 min left"


def test_before_the_first_has_finished_a_running_one_tells() -> None:
    assert seconds_left([run("running", 60, eta=20), run("queued")]) == pytest.approx(70)
    assert seconds_left([run("running"), run("queued")]) is None


def test_what_has_ended_otherwise_is_counted_and_waits_for_nothing() -> None:
    runs = [run("finished", 100, took=10), run("failed", 3, took=1), run("stopped", 5, took=1)]
    assert how_far(runs) == "1 of 3 finished · 1 failed · 1 stopped"


def test_how_long_a_sweep_would_take() -> None:
    assert runs_and_time(45, 3900) == "45 runs · about 1 h 05 m with one worker"
    without = runs_and_time(45, 3900, with_evaluations=False)
    assert without == "45 runs · about 1 h 05 m with one worker, evaluations not counted"
    assert "not known yet" in runs_and_time(1, None)
