"""Bringing the database to the newest schema, at every start.

`tables.py` declares the schema. A new database is built from it; one of an earlier revision gets the tables, columns and
indexes that it lacks, and then the data that a later revision derives from what was stored before.
The revision stands in the table `alembic_version`, where the earliest versions of the program look for it, too.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import Connection, inspect, select, text
from sqlalchemy.schema import CreateColumn

from backend.storage.database import Database
from backend.storage.folding import kept_fold
from backend.storage.revision import REVISION, is_known
from backend.storage.tables import METRIC_WIDTHS, metadata, metric_stretch, revision, run


class NewerDatabase(Exception):
    """The database was written by a newer version of the program."""


def upgrade(database: Database) -> None:
    """Bring the schema and the data up to date, all or nothing. Raises NewerDatabase."""
    with database.write() as tx:
        found = tx.scalar(select(revision.c.version_num)) if inspect(tx).has_table(revision.name) else None
        if found is not None and not is_known(found):
            raise NewerDatabase(f"its revision is {found}, and this version knows those up to {REVISION:04}")
        before = int(found or 0)
        if before == REVISION:
            return
        _complete_schema(tx)
        for since, step in _STEPS.items():
            if before < since:
                step(tx)
        tx.execute(revision.delete())
        tx.execute(revision.insert().values(version_num=f"{REVISION:04}"))


def _complete_schema(tx: Connection) -> None:
    """Add the tables, columns and indexes that are missing.

    A column is added in place: building its table anew would forget which numbers the table has given.
    """
    there = inspect(tx)
    for table in metadata.sorted_tables:
        if not there.has_table(table.name):
            table.create(tx)
            continue
        named = {column["name"] for column in there.get_columns(table.name)}
        for column in table.columns:
            if column.name not in named:
                declared = CreateColumn(column).compile(dialect=tx.dialect)
                tx.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {declared}")
        for index in table.indexes:
            index.create(tx, checkfirst=True)


def _copy_groups_into_completions(tx: Connection) -> None:
    """Completions carry the run, attempt, step and state of their group; an index of groups goes, which another replaces."""
    tx.execute(
        text("""
            UPDATE completion SET run_id = of.run_id, attempt = of.attempt, step = of.step, state = of.state
            FROM prompt_group AS of WHERE of.id = completion.group_id
        """)
    )
    tx.execute(text("DROP INDEX IF EXISTS ix_prompt_group_run_id_prompt_id"))


SEARCHED = {"completion_trigrams": ("completion", "text"), "prompt_trigrams": ("prompt_group", "prompt_text")}
"""Each index of trigrams, with the table and the column that it indexes."""


def _build_search(tx: Connection) -> None:
    """Build the indexes of trigrams, and the lists of their trigrams in order; SQLite alone has them.

    An index stores neither texts nor positions: a search reads the rows that it finds. A text is indexed with two control
    characters behind it, so that its last characters begin a trigram, too: one or two characters are found by it.
    """
    if tx.dialect.name != "sqlite":
        return
    for index, (table, column) in SEARCHED.items():
        tx.exec_driver_sql(f"DROP TABLE IF EXISTS {index}")
        tx.exec_driver_sql(
            f"CREATE VIRTUAL TABLE {index} USING fts5("
            f"{column}, content='', content_rowid='id', tokenize='trigram', detail='none')"
        )
        tx.exec_driver_sql(f"INSERT INTO {index} (rowid, {column}) SELECT id, {column} || char(1, 1) FROM {table}")
        tx.exec_driver_sql(f"CREATE VIRTUAL TABLE {index}_places USING fts5vocab('{index}', 'instance')")


def _fold_texts(tx: Connection) -> None:
    """Keep beside each text the form in which it is compared, if that is another; the index has it in the text's place.

    Only such rows are indexed anew: in most runs they are few.
    """
    for index, (table, column) in SEARCHED.items():
        keep = [f"UPDATE {table} SET folded = :folded WHERE id = :id"]
        if tx.dialect.name == "sqlite":
            gain = f"INSERT INTO {index} (rowid, {column}) VALUES ({{}}, {{}} || char(1, 1))"
            lose = f"INSERT INTO {index} ({index}, rowid, {column}) VALUES ('delete', {{}}, {{}} || char(1, 1))"
            keep += [lose.format(":id", ":text"), gain.format(":id", ":folded")]
            for verb, event, row, change in (("gains", "INSERT", "new", gain), ("loses", "DELETE", "old", lose)):
                tx.exec_driver_sql(f"DROP TRIGGER IF EXISTS {table}_{verb}_{column}")
                change = change.format(f"{row}.id", f"coalesce({row}.folded, {row}.{column})")
                tx.exec_driver_sql(
                    f"CREATE TRIGGER {table}_{verb}_{column} AFTER {event} ON {table} BEGIN {change}; END"
                )
        page, last = text(f"SELECT id, {column} FROM {table} WHERE id > :last ORDER BY id LIMIT 1000"), 0
        while rows := tx.execute(page, {"last": last}).all():
            last = rows[-1][0]
            changed = [{"id": one, "text": said, "folded": kept_fold(said)} for one, said in rows]
            changed = [one for one in changed if one["folded"] is not None]
            for statement in keep if changed else []:
                tx.execute(text(statement), changed)


_STRETCHES = text("""
    INSERT INTO metric_stretch
        (run_id, width, name, start, first_step, last_step, finite, missing, mean, low_step, low, high_step, high)
    WITH live AS (
        SELECT metric.run_id, name, step, value, step / :width * :width AS start
        FROM metric
        JOIN attempt ON attempt.run_id = metric.run_id AND attempt.attempt = metric.attempt
        WHERE (live_below IS NULL OR step < live_below) AND name NOT LIKE 'eval/%'
    ), bounded AS (
        SELECT *, min(value) OVER stretch AS low, max(value) OVER stretch AS high
        FROM live WINDOW stretch AS (PARTITION BY run_id, name, start)
    )
    SELECT run_id, :width, name, start, min(step), max(step), count(value), count(*) - count(value), avg(value),
        min(CASE WHEN value = low THEN step END), min(value), min(CASE WHEN value = high THEN step END), max(value)
    FROM bounded GROUP BY run_id, name, start
""")


def _build_stretches(tx: Connection) -> None:
    """Count the stretches of the metrics anew: earlier ones had no means."""
    metric_stretch.drop(tx)
    metric_stretch.create(tx)
    for width in METRIC_WIDTHS:
        tx.execute(_STRETCHES, {"width": width})


def _write_needs(tx: Connection) -> None:
    """Write beside each configuration what its run needs; an index of runs goes, which another replaces."""
    for run_id in tx.scalars(select(run.c.id)).all():
        config = tx.execute(select(run.c.config).where(run.c.id == run_id)).scalar_one()
        needs = json.dumps(_needs(config), separators=(",", ":"))
        tx.execute(run.update().where(run.c.id == run_id).values(needs=needs))
    tx.execute(text("DROP INDEX IF EXISTS ix_run_status"))


def _needs(config: dict[str, Any]) -> dict[str, Any]:
    """What `runs/needs.py` wrote at revision 12, of configurations from before."""
    rewards = list(_rewards(config))
    sources = [one["source"] for _, one in rewards if one["kind"] == "reward_model"]
    sources.append((config.get("model") or {}).get("source", ""))
    return {
        "judges": {one["endpoint"]: f"{field}.endpoint" for field, one in rewards if one["kind"] == "judge"},
        "functions": {one["function"]: f"{field}.function" for field, one in rewards if one["kind"] == "python"},
        "engine": (config.get("sampling") or {}).get("engine", "native"),
        "runs": sorted({int(found[1]) for one in sources if (found := re.fullmatch(r"run:(\d+)@\d+", one))}),
    }


def _rewards(config: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, parent in (("rewards", config), ("pairs.rewards", config.get("pairs") or {})):
        for index, one in enumerate((parent.get("rewards") or {}).get("functions") or ()):
            yield f"{path}.functions.{index}", one


_STEPS: dict[int, Callable[[Connection], None]] = {
    5: _copy_groups_into_completions,
    7: _build_search,
    10: _build_stretches,
    12: _write_needs,
    22: _fold_texts,
}
"""What a database from before a revision gets, beside what its schema lacks."""
