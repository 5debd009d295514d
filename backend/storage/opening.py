"""Opening the database at a start: what cannot be served is said in words, before anything is written."""

import logging
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from backend.contract.home import CannotStart
from backend.reserve import error_code, lacks_room, no_room
from backend.storage.database import Database
from backend.storage.migrate import NewerDatabase, upgrade

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0  # for the pages of the database; `groupscope doctor` takes the time that it needs
_STEPS = 10_000  # of SQLite's machine between two looks at the clock
_ADVICE = "Put a backup in place with `groupscope restore`, or name another home with --home"


def open_database(url: str, *, busy_seconds: float) -> Database:
    """The database, up to date. Raises CannotStart."""
    try:
        address = make_url(url)
        address.get_dialect().import_dbapi()
    except (ArgumentError, ImportError) as error:
        raise CannotStart(f"GROUPSCOPE_DATABASE_URL names no database that can be used here: {error}") from None
    file = Path(address.database) if address.get_backend_name() == "sqlite" and address.database else None
    if file is not None and file.exists() and file.stat().st_size:
        try:
            _look_at(file, busy_seconds)
        except CannotStart:
            # SQLite makes two files beside it when it opens it, and says "disk I/O error" where they do not fit
            if lacks_room(file.parent):
                raise no_room(file.parent) from None
            raise
    database = Database(url, busy_seconds=busy_seconds)
    where = file or address.render_as_string()
    try:
        upgrade(database)
    except NewerDatabase as error:
        database.close()
        text = f"the database {where} was written by a newer Groupscope ({error}): install the newer one. {_ADVICE}"
        raise CannotStart(text) from None
    except DBAPIError as error:
        database.close()
        advice = _ADVICE
        if file is None:
            advice = "See that its server runs and that GROUPSCOPE_DATABASE_URL names it"
        elif "locked" in str(error.orig):
            advice = "Another program has it open for writing: end that one, then start again"
        raise CannotStart(f"the database {where} cannot be opened: {error.orig}. {advice}") from None
    return database


def _look_at(file: Path, busy_seconds: float) -> None:
    """Whether it is a database of ours, and whole as far as two seconds of looking tell. Raises CannotStart."""
    try:
        with closing(sqlite3.connect(file, timeout=busy_seconds)) as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if tables and "alembic_version" not in tables:
                raise CannotStart(f"{file} is the database of another program: name another home with --home")
            end = time.monotonic() + LOOK_SECONDS
            database.set_progress_handler(lambda: time.monotonic() > end, _STEPS)
            [found] = database.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        if error_code(error) != sqlite3.SQLITE_INTERRUPT:
            raise CannotStart(f"the database {file} cannot be read: {error}. {_ADVICE}") from None
        log.info("the database is large: %.0f s of looking at its pages found no damage", LOOK_SECONDS)
        return
    if found != "ok":
        raise CannotStart(f"the database {file} is damaged: {found}. `groupscope doctor` says more. {_ADVICE}")
