"""Databases that earlier versions filled: each is brought up to date, and answers all that it answered then.

The data was recorded by scripts/revision_data.py with the last code of each revision: real runs, one of them resumed
after a kill, an upload, samples, and what people said of groups.
"""

import json
import lzma
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from serving import Backends
from sqlalchemy import Connection, select, text

from backend.storage import tables
from backend.storage.database import Database
from backend.storage.migrate import upgrade
from backend.storage.revision import REVISION
from backend.telemetry import search, stretches

DATA = Path(__file__).parent / "revisions"
REVISIONS = sorted(path.name[:4] for path in DATA.glob("*.db.xz"))

Answer = object


def lost(before: Answer, now: Answer, where: str = "") -> Iterator[str]:
    """Where an answer of today does not hold what an earlier version answered. It may hold more."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key, value in before.items():
            if key not in now:
                yield f"{where}.{key} is gone"
            else:
                yield from lost(value, now[key], f"{where}.{key}")
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for at, (one, other) in enumerate(zip(before, now, strict=True)):
            yield from lost(one, other, f"{where}[{at}]")
    elif before != now:
        yield f"{where}: {before!r} became {now!r}"


def test_every_revision_but_the_newest_has_its_data() -> None:
    assert [f"{number:04}" for number in range(1, REVISION)] == REVISIONS


def recorded(revision: str, folder: Path) -> Path:
    """The file of a database that the last code of a revision filled."""
    folder.mkdir(exist_ok=True)
    file = folder / "groupscope.db"
    file.write_bytes(lzma.decompress((DATA / f"{revision}.db.xz").read_bytes()))
    return file


def schema(file: Path) -> dict[str, object]:
    """All that the schema says: columns in the order of their names, keys, indexes, triggers, search, and options of tables."""
    with closing(sqlite3.connect(file)) as database:
        found: dict[str, object] = {}
        for kind, name, table, sql in database.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"):
            if kind != "table" or "VIRTUAL" in sql:
                found[f"{kind} {name}"] = sql
                continue
            columns = database.execute(f"SELECT * FROM pragma_table_xinfo('{table}')").fetchall()
            keys = database.execute(
                f'SELECT "from", "table", "to", on_delete FROM pragma_foreign_key_list(\'{table}\')'
            )
            checks = re.findall(r"CONSTRAINT ck_\w+ CHECK .*", sql)
            options = [word for word in ("AUTOINCREMENT", "WITHOUT ROWID") if word in sql]
            found[table] = (sorted(column[1:] for column in columns), sorted(keys), checks, options)
        return found


@pytest.mark.parametrize("revision", REVISIONS)
def test_an_upgraded_database_has_the_schema_of_a_new_one(revision: str, tmp_path: Path) -> None:
    old, new = recorded(revision, tmp_path), tmp_path / "new.db"
    for file in (old, new):
        database = Database(f"sqlite:///{file}")
        upgrade(database)
        database.close()
    assert schema(old) == schema(new)


def live_metrics_of_three_attempts(tx: Connection) -> None:
    """Replace all runs by one with 90 steps of 3 attempts; some values are missing, some of a history that was taken back."""
    run = {
        "id": 1, "name": "x", "kind": "grpo", "status": "finished", "requested": "nothing", "priority": 0, "config": "{}",
        "tags": "[]", "notes": "", "attempt": 3, "failures": 0, "step": 90, "total_steps": 90, "summary": "{}",
        "sparkline": "{}", "created_at": "2026-01-01",
    }  # fmt: skip
    tx.execute(text("delete from run"))
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


@pytest.mark.parametrize("revision", ["0004", "0009"])  # one without stretches, one whose stretches had no means
def test_stretches_are_counted_anew_from_the_live_values_of_an_earlier_database(revision: str, tmp_path: Path) -> None:
    database = Database(f"sqlite:///{recorded(revision, tmp_path)}")
    with database.write() as tx:
        live_metrics_of_three_attempts(tx)
    upgrade(database)
    kept = select(tables.metric_stretch).order_by("width", "start")
    with database.write() as tx:
        upgraded = tx.execute(kept).mappings().all()
        tx.execute(tables.metric_stretch.delete())
        for name, step, value in tx.execute(
            text(
                "select name, step, value from metric join attempt using (run_id, attempt) "
                "where live_below is null or step < live_below"
            )
        ).all():
            stretches.add(tx, 1, [(step, {name: value})])
        counted = tx.execute(kept).mappings().all()
    assert len(upgraded) == 23 + 6 + 2 + 1 + 1
    assert [row["mean"] for row in upgraded] == pytest.approx([row["mean"] for row in counted], rel=1e-12)
    assert [{**row, "mean": None} for row in upgraded] == [{**row, "mean": None} for row in counted]


@pytest.mark.parametrize("revision", ["0005", "0006", "0021"])  # without an index, and with one of texts as they stand
def test_texts_of_an_earlier_database_are_found_without_their_capitals_and_lost_as_they_are_deleted(
    revision: str, tmp_path: Path
) -> None:
    file, said = recorded(revision, tmp_path), "E\u0301COLE"
    with closing(sqlite3.connect(file)) as older, older:
        names = [f'"{name}"' for (name,) in older.execute("SELECT name FROM pragma_table_info('completion')")]
        others = ", ".join(name for name in names if name not in ('"id"', '"index"', '"text"'))
        older.execute(
            f'INSERT INTO completion ("index", text, {others}) SELECT 999, ?, {others} FROM completion LIMIT 1', (said,)
        )
        run_id = older.execute(
            "SELECT prompt_group.run_id FROM prompt_group JOIN completion ON group_id = prompt_group.id"
        ).fetchone()[0]
    database = Database(f"sqlite:///{file}")
    upgrade(database)
    column = tables.completion.c
    with database.write() as tx:
        [found] = tx.execute(select(column.id).where(search.contains(tx, column.text, "école"))).scalars()
        assert search.candidates(tx, tables.completion, run_id, "école", 9) == [found]
        tx.execute(tables.completion.delete().where(column.id == found))
        assert (
            tx.exec_driver_sql(
                "SELECT count(*) FROM completion_trigrams WHERE completion_trigrams MATCH '\"col\"'"
            ).scalar_one()
            == 0
        )
    database.close()


@pytest.mark.slow
@pytest.mark.parametrize("revision", REVISIONS)
def test_a_database_of_an_earlier_version_answers_as_then_and_can_be_searched(revision: str, tmp_path: Path) -> None:
    home = recorded(revision, tmp_path / "home").parent
    answers = json.loads(lzma.decompress((DATA / f"{revision}.json.xz").read_bytes()))
    with Backends(home) as backends:
        backend = backends.start()
        for path, before in answers.items():
            answer = backend.http.get(f"/api/v1{path}")
            lines = path.endswith("/export")
            now = [json.loads(line) for line in answer.text.splitlines()] if lines else answer.json()
            if before is not None:
                assert list(lost(before, now, path)) == []
        with backend.services.database.read() as tx:
            assert tx.exec_driver_sql("PRAGMA integrity_check").scalar_one() == "ok"
            assert tx.exec_driver_sql("PRAGMA foreign_key_check").all() == []
        first = backend.client.group(next(iter(backend.client.groups(1).items)).id).completions[0]
        found = backend.http.get("/api/v1/runs/1/completions", params={"search": first.text[:12]}).json()["items"]
        assert first.id in [hit["id"] for hit in found]
