"""Uploads in the database, and their files: the server names them, and each is there whole before its row."""

import hashlib
import os
from datetime import datetime
from pathlib import Path

from sqlalchemy import Connection, RowMapping, delete, insert, select

from backend.contract import records as r
from backend.contract.queries import PageQuery
from backend.errors import Conflict, NotFound
from backend.runs.store import WAITING
from backend.storage.statements import newest_first
from backend.storage.tables import run, upload
from backend.uploads import jsonl

FOLDER = "uploads"
BOM = b"\xef\xbb\xbf"


def path_of(home: Path, upload_id: int) -> Path:
    """Where an upload lies."""
    return home / FOLDER / f"{upload_id}.jsonl"


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def add(tx: Connection, home: Path, name: str, partial: Path, found: jsonl.Contents, sha256: str, at: datetime) -> int:
    """Record an upload and move its file to its place. A crash in between leaves a file that the next upload replaces."""
    values = {
        "name": name,
        "rows": found.rows,
        "columns": found.columns,
        "size_bytes": partial.stat().st_size,
        "sha256": sha256,
        "created_at": at,
    }
    upload_id: int = tx.execute(insert(upload).values(values).returning(upload.c.id)).scalar_one()
    os.replace(partial, path_of(home, upload_id))
    return upload_id


def clear(home: Path) -> None:
    """Delete what a backend that was killed had begun to receive."""
    for partial in (home / FOLDER).glob("tmp*.partial"):
        partial.unlink(missing_ok=True)


def get(tx: Connection, upload_id: int) -> r.Upload:
    """One upload. Raises NotFound."""
    row = tx.execute(select(upload).where(upload.c.id == upload_id)).mappings().one_or_none()
    if row is None:
        raise NotFound(f"There is no upload {upload_id}.")
    return _upload(row)


def _upload(row: RowMapping) -> r.Upload:
    # an earlier version took more columns
    return r.Upload.model_validate({**row, "columns": row["columns"][: jsonl.MOST_COLUMNS]})


def find(tx: Connection, name: str, sha256: str) -> r.Upload | None:
    """The newest upload of this name with just this content."""
    same = select(upload).where(upload.c.name == name, upload.c.sha256 == sha256).limit(1)
    row = tx.execute(same).mappings().one_or_none()
    return None if row is None else _upload(row)


def page(tx: Connection, query: PageQuery) -> r.Page[r.Upload]:
    """Uploads, newest first."""
    rows, cursor = newest_first(tx, select(upload), upload.c.id, query)
    return r.Page[r.Upload](items=[_upload(row) for row in rows], next_cursor=cursor)


def remove(tx: Connection, upload_id: int) -> None:
    """Forget an upload. Raises NotFound, and Conflict while a run needs it."""
    get(tx, upload_id)
    needs = select(run.c.id).where(run.c.upload_id == upload_id, run.c.status.in_(WAITING)).order_by(run.c.id)
    users = list(tx.execute(needs).scalars())
    if users:
        names = ", ".join(map(str, users[:5]))
        raise Conflict(f"Upload {upload_id} is needed by run {names}; stop or finish what needs it first.")
    tx.execute(delete(upload).where(upload.c.id == upload_id))
