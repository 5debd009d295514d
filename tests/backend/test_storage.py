"""The database: migrations that build what the code expects, and transactions that lose nothing."""

import sqlite3
import threading
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, inspect, select, text
from sqlalchemy.exc import IntegrityError, OperationalError

from backend.storage import people_tables, tables  # noqa: F401  (each puts its tables into the metadata)
from backend.storage.columns import metadata
from backend.storage.database import Database
from backend.storage.migrate import alembic_config, upgrade
from backend.telemetry import stretches


@pytest.fixture
def database(tmp_path: Path) -> Database:
    database = Database(f"sqlite:///{tmp_path / 'test.db'}")
    upgrade(database)
    return database


def table_options(tx: Connection) -> dict[str, tuple[bool, bool]]:
    """What SQLAlchemy's comparison does not see: AUTOINCREMENT and WITHOUT ROWID, by table."""
    rows = tx.execute(text("select name, sql from sqlite_master where type = 'table' and name not like 'sqlite_%'"))
    return {name: ("AUTOINCREMENT" in sql, "WITHOUT ROWID" in sql) for name, sql in rows}


def is_no_search_index(name: str | None, *_: object) -> bool:
    """SQLite's full-text indexes are the migrations' alone; SQLAlchemy cannot speak of them."""
    return "_trigrams" not in (name or "")


def test_the_migrations_build_the_tables_of_the_code(database: Database, tmp_path: Path) -> None:
    direct = Database(f"sqlite:///{tmp_path / 'direct.db'}")
    with database.write() as migrated, direct.write() as built:
        context = MigrationContext.configure(migrated, opts={"include_name": is_no_search_index})
        assert compare_metadata(context, metadata) == []
        metadata.create_all(built)
        expected = table_options(built)
        found = table_options(migrated)
        found.pop("alembic_version")
        assert {name: kept for name, kept in found.items() if is_no_search_index(name)} == expected
        for name in metadata.tables:
            assert inspect(migrated).get_check_constraints(name) == inspect(built).get_check_constraints(name)


def test_migrating_again_changes_nothing(database: Database) -> None:
    upgrade(database)


def test_the_migrations_can_be_taken_back(database: Database) -> None:
    with database.write() as tx:
        command.downgrade(alembic_config(tx), "base")
    with database.read() as tx:
        assert inspect(tx).get_table_names() == ["alembic_version"]


def live_metrics_of_two_attempts(tx: Connection) -> None:
    """A run with 90 steps of 3 attempts in tables of revision 0004; some values are missing, some of a history that was taken back."""
    run = {
        "id": 1, "name": "x", "kind": "grpo", "status": "finished", "requested": "nothing", "priority": 0, "config": "{}",
        "tags": "[]", "notes": "", "attempt": 3, "failures": 0, "step": 90, "total_steps": 90, "summary": "{}",
        "sparkline": "{}", "created_at": "2026-01-01",
    }  # fmt: skip
    tx.execute(text(f"insert into run ({', '.join(run)}) values ({', '.join(f':{name}' for name in run)})"), run)
    attempts = {1: (0, 30, 21), 2: (21, 50, 40), 3: (40, 90, None)}  # attempt -> from step, up to step, live below
    for number, (first, stop, below) in attempts.items():
        tx.execute(
            text(
                "insert into attempt (run_id, attempt, worker, claimed_at, from_step, live_below) "
                "values (1, :number, 'w', '2026-01-01', :first, :below)"
            ),
            {"number": number, "first": first, "below": below},
        )
        rows = [
            {"name": name, "step": step, "number": number, "value": value}
            for step in range(first, stop)
            for name, value in (("kl", None if step % 7 == 3 else step * number / 10), ("eval/pass@1", 0.5))
        ]
        tx.execute(
            text("insert into metric (run_id, name, step, attempt, value) values (1, :name, :step, :number, :value)"),
            rows,
        )


def test_the_means_of_stretches_are_counted_anew_from_the_live_values_of_an_earlier_database(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'old.db'}")
    kept = select(tables.metric_stretch).order_by("width", "start")
    with database.write() as tx:
        command.upgrade(alembic_config(tx), "0004")
        live_metrics_of_two_attempts(tx)
        command.upgrade(alembic_config(tx), "0009")  # 0005 makes the stretches of the time
        command.upgrade(alembic_config(tx), "head")
        migrated = tx.execute(kept).mappings().all()
        tx.execute(tables.metric_stretch.delete())
        for name, step, value in tx.execute(
            text(
                "select name, step, value from metric join attempt using (run_id, attempt) "
                "where live_below is null or step < live_below"
            )
        ).all():
            stretches.add(tx, 1, step, {name: value})
        counted = tx.execute(kept).mappings().all()
        command.downgrade(alembic_config(tx), "0009")
        command.upgrade(alembic_config(tx), "head")
        again = tx.execute(kept).mappings().all()
    assert len(migrated) == 23 + 6 + 2 + 1 + 1
    for found in (migrated, again):
        assert [row["mean"] for row in found] == pytest.approx([row["mean"] for row in counted], rel=1e-12)
        assert [{**row, "mean": None} for row in found] == [{**row, "mean": None} for row in counted]


def test_what_is_accepted_is_on_the_disk(database: Database) -> None:
    with database.write() as tx:
        pragmas = {
            name: tx.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}


def test_reading_and_then_writing_loses_no_update(database: Database) -> None:
    with database.write() as tx:
        tx.execute(text("create table counter (n integer)"))
        tx.execute(text("insert into counter values (0)"))

    def count() -> None:
        for _ in range(25):
            with database.write() as tx:
                n = tx.execute(text("select n from counter")).scalar_one()
                tx.execute(text("update counter set n = :n"), {"n": n + 1})

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with database.read() as tx:
        assert tx.execute(text("select n from counter")).scalar_one() == 200


def test_a_writer_has_the_lock_from_its_beginning_so_that_it_never_fails_half_way(
    database: Database, tmp_path: Path
) -> None:
    with database.write() as tx:
        tx.execute(text("select count(*) from run"))
        other = sqlite3.connect(tmp_path / "test.db", timeout=0, isolation_level=None)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        other.close()


def test_a_reader_waits_for_no_writer_and_sees_one_moment(database: Database) -> None:
    count = text("select count(*) from upload")
    insert = text("insert into upload values (null, 'x', 1, '[]', 1, '', '2026-01-01')")
    with database.read() as reader:
        assert reader.execute(count).scalar_one() == 0
        with database.write() as writer:
            writer.execute(insert)
            assert reader.execute(count).scalar_one() == 0
        assert reader.execute(count).scalar_one() == 0
    with database.read() as reader:
        assert reader.execute(count).scalar_one() == 1


def test_a_reader_cannot_write(database: Database) -> None:
    with pytest.raises(OperationalError, match="readonly"), database.read() as tx:
        tx.execute(text("delete from upload"))


def test_a_running_run_always_has_a_lease(database: Database) -> None:
    columns = "name, kind, status, requested, priority, config, tags, notes, attempt, failures, step, total_steps, summary, sparkline, created_at"
    values = "'x', 'grpo', 'running', 'nothing', 0, '{}', '[]', '', 1, 0, 0, 1, '{}', '{}', '2026-01-01'"
    with pytest.raises(IntegrityError, match="running_has_a_lease"), database.write() as tx:
        tx.execute(text(f"insert into run ({columns}) values ({values})"))
