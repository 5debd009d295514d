"""The short form of `make soak`: random kills of backend and worker, in one home."""

import sqlite3
from pathlib import Path

import pytest
from acting import Actor
from serving import Backend
from soak import KINDS, VICTIMS, Ledger, kills_in, soak

from backend.contract.protocol import LogLine


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_forty_random_kills_lose_double_and_damage_nothing_and_change_no_weights(tmp_path: Path) -> None:
    counts = soak(tmp_path / "home", 40, seed=20, say=lambda _: None)
    assert kills_in(counts) == 40
    assert counts["runs with equal weights"] >= len(KINDS)
    assert counts["acknowledged reports"] > 100
    assert all(counts[f"kills of {victim}"] for victim in VICTIMS)


@pytest.mark.parametrize(
    ("harm", "named"),
    [
        ("DELETE FROM metric WHERE step = 1", "1 rows are gone or changed"),
        ("UPDATE metric SET value = 2 WHERE step = 0", "1 rows are gone or changed"),
        ("UPDATE completion SET text = 'other' WHERE step = 1 AND \"index\" = 0", "1 rows are gone or changed"),
        ("DELETE FROM report WHERE seq = 1", "1 rows are gone or changed"),
        (
            "INSERT INTO log_line (run_id, attempt, level, message, created_at) "
            "SELECT run_id, attempt, level, message, created_at FROM log_line WHERE message = 'step 1'",
            "doubled: .*step 1",
        ),
    ],
)
def test_the_ledger_of_the_soak_notices_each_row_that_is_lost_changed_or_doubled(
    backend: Backend, harm: str, named: str
) -> None:
    backend.client.create_run({"kind": "grpo"})
    actor = Actor(backend.client).begin()
    actor.report(0, metrics={"reward": 1.0})
    ledger, database = Ledger(), backend.home / "groupscope.db"
    ledger.check(database)
    actor.report(1, metrics={"reward": 1.0}, logs=[LogLine(message="step 1")])
    ledger.check(database)
    with sqlite3.connect(database) as opened:
        assert opened.execute(harm).rowcount == 1
    with pytest.raises(AssertionError, match=named):
        ledger.check(database)
