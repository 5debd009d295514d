"""What judges replied, kept in the worker's home: the same question is never paid twice."""

import hashlib
import json
import logging
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from worker.rewards.judge_endpoint import Reply

log = logging.getLogger(__name__)

BUSY_SECONDS = 5.0
T = TypeVar("T")


class JudgeCache:
    """Replies by a hash of who was asked what; several threads and workers may use one file.

    It saves money and decides nothing: where it cannot be read or written, judges are asked.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()

    def find(self, key: str) -> Reply | None:
        """The reply that was kept, if any."""

        def select(database: sqlite3.Connection) -> Reply | None:
            row = database.execute("SELECT reply FROM reply WHERE key = ?", (key,)).fetchone()
            return Reply(**json.loads(row[0])) if row else None

        return self._with_database(select)

    def keep(self, key: str, reply: Reply) -> None:
        """Keep a reply."""
        values = (key, json.dumps(asdict(reply)))
        self._with_database(lambda database: database.execute("INSERT OR REPLACE INTO reply VALUES (?, ?)", values))

    def _with_database(self, act: Callable[[sqlite3.Connection], T]) -> T | None:
        if self._path is None:
            return None
        try:
            with self._lock, closing(sqlite3.connect(self._path, timeout=BUSY_SECONDS)) as database, database:
                database.execute("CREATE TABLE IF NOT EXISTS reply (key TEXT PRIMARY KEY, reply TEXT NOT NULL)")
                return act(database)
        except (sqlite3.Error, ValueError, TypeError) as error:
            log.warning("the judges' cache %s cannot be used: %s", self._path, error)
            return None


def cache_key(endpoint: str, prompt: str, max_tokens: int) -> str:
    """One key for one request to one service and model."""
    return hashlib.sha256(json.dumps([endpoint, max_tokens, prompt]).encode()).hexdigest()
