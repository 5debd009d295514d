"""Room on the disk that is kept for what must be stored also when there is no other: deleting, stopping, how a run ended.

Without it a full disk stays full: a delete, too, writes to the database before it frees anything.
"""

import errno
import logging
import os
import shutil
import sqlite3
import tempfile
from pathlib import Path

from backend.contract.home import CannotStart

log = logging.getLogger(__name__)

BYTES = 8 * 2**20
LEAST_FREE = 4 * BYTES
"""The reserve is taken only where this much is free, so that it is never what fills a disk."""
FULL = 2**20
"""A start with less than this free uses the reserve: the database needs some files to be opened."""
LOOK_SECONDS = 10.0  # between attempts to take it again
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_PROBE = 2**16  # bytes: some pages of the database


class Reserve:
    """A file of the home whose bytes are given back to the disk when they are needed."""

    def __init__(self, home: Path) -> None:
        self._home, self._path = home, home / "reserve"

    def take(self) -> None:
        """Have the reserve, if there is room for it."""
        if self._path.exists() or shutil.disk_usage(self._home).free < LEAST_FREE:
            return
        partial = self._path.with_suffix(".partial")
        try:
            with partial.open("wb") as file:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, BYTES)
                else:  # macOS
                    file.write(bytes(BYTES))
            os.replace(partial, self._path)
        except OSError as error:  # a disk that fills up in this moment, or one that cannot set room aside
            partial.unlink(missing_ok=True)
            log.warning("no room is kept for a full disk: %s", error)

    def give_up_if_full(self) -> None:
        """Before the database is opened, which writes."""
        if lacks_room(self._home):
            self.give_up()

    def give_up(self) -> bool:
        """Give the room back to the disk; whether there was any to give."""
        try:
            self._path.unlink()
        except FileNotFoundError:
            return False
        log.warning("the disk of %s is full: the reserve of %d MiB is used", self._home, BYTES >> 20)
        return True


def no_room(home: Path) -> CannotStart:
    """Why a start cannot go on."""
    free = shutil.disk_usage(home).free
    full = "the disk" if free < FULL else "the quota"
    return CannotStart(
        f"{full} of {home} is full ({free:,} bytes free), and the database cannot be written: remove something from it; "
        "a megabyte is enough to start and to delete runs"
    )


def error_code(error: BaseException | None) -> int:
    """SQLite's extended result code; 0 for an error that Python's module raised by itself, and for any other."""
    return int(getattr(error, "sqlite_errorcode", 0))


def is_disk_full(error: BaseException, home: Path) -> bool:
    """Whether a write found no room, or a quota that is used up."""
    found = getattr(error, "orig", None) or error
    if isinstance(found, sqlite3.Error):
        # the index of the write-ahead log is a file, too, which may find no room for its first pages
        if error_code(found) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE):
            return True
        return error_code(found) & 0xFF == sqlite3.SQLITE_IOERR and lacks_room(home)
    return isinstance(found, OSError) and found.errno in _NO_SPACE


def lacks_room(folder: Path) -> bool:
    """Whether some pages find no room there now. Of a quota SQLite says "disk I/O error", and the free space of its disk nothing."""
    if shutil.disk_usage(folder).free < FULL:
        return True
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_PROBE))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.errno in _NO_SPACE
    return False
