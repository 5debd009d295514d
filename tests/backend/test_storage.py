"""The database: a schema that is built once, and transactions that lose nothing."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import inspect, select, text
from sqlalchemy.exc import IntegrityError, OperationalError

from backend.storage.database import Database
from backend.storage.migrate import NewerDatabase, upgrade
from backend.storage.revision import REVISION
from backend.storage.tables import revision


@pytest.fixture
def database(tmp_path: Path) -> Database:
    database = Database(f"sqlite:///{tmp_path / 'test.db'}")
    upgrade(database)
    return database


def test_an_up_to_date_database_is_left_as_it_is(database: Database) -> None:
    with database.read() as tx:
        before = tx.exec_driver_sql("PRAGMA schema_version").scalar_one()
    upgrade(database)
    with database.read() as tx:
        assert tx.exec_driver_sql("PRAGMA schema_version").scalar_one() == before


@pytest.mark.parametrize("found", [f"{REVISION + 1:04}", "9999", "0000", "1a2b3c"])
def test_a_database_of_an_unknown_revision_is_refused_and_stays_as_it_is(database: Database, found: str) -> None:
    with database.write() as tx:
        tx.execute(revision.update().values(version_num=found))
        tx.exec_driver_sql("DROP INDEX ix_run_queue")
    with pytest.raises(
        NewerDatabase, match=f"its revision is {found}, and this version knows those up to {REVISION:04}"
    ):
        upgrade(database)
    with database.read() as tx:
        assert tx.scalar(select(revision.c.version_num)) == found
        assert "ix_run_queue" not in {index["name"] for index in inspect(tx).get_indexes("run")}


def test_what_is_accepted_is_on_the_disk(database: Database) -> None:
    with database.write() as tx:
        names = ("journal_mode", "synchronous", "foreign_keys")
        assert [tx.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in names] == ["wal", 2, 1]


def test_reading_and_then_writing_loses_no_update(database: Database) -> None:
    with database.write() as tx:
        tx.execute(text("create table counter (n integer)"))
        tx.execute(text("insert into counter values (0)"))

    def count() -> None:
        for _ in range(25):
            with database.write() as tx:
                n = tx.execute(text("select n from counter")).scalar_one()
                tx.execute(text("update counter set n = :n"), {"n": n + 1})

    with ThreadPoolExecutor(8) as pool:
        for ended in [pool.submit(count) for _ in range(8)]:
            ended.result()
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


def test_a_reader_waits_for_no_writer_sees_one_moment_and_cannot_write(database: Database) -> None:
    count = text("select count(*) from upload")
    insert = text(
        "insert into upload (name, rows, columns, size_bytes, sha256, created_at) values ('x', 1, '[]', 1, '', '2026-01-01')"
    )
    with database.read() as reader:
        assert reader.execute(count).scalar_one() == 0
        with database.write() as writer:
            writer.execute(insert)
            assert reader.execute(count).scalar_one() == 0
        assert reader.execute(count).scalar_one() == 0
    with database.read() as reader:
        assert reader.execute(count).scalar_one() == 1
    with pytest.raises(OperationalError, match="readonly"), database.read() as reader:
        reader.execute(text("delete from upload"))


def test_a_running_run_always_has_a_lease(database: Database) -> None:
    columns = "name, kind, status, requested, priority, config, tags, notes, attempt, failures, step, total_steps, summary, sparkline, created_at"
    values = "'x', 'grpo', 'running', 'nothing', 0, '{}', '[]', '', 1, 0, 0, 1, '{}', '{}', '2026-01-01'"
    with pytest.raises(IntegrityError, match="running_has_a_lease"), database.write() as tx:
        tx.execute(text(f"insert into run ({columns}) values ({values})"))
