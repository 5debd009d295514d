"""Uploads in the database, and their files: the server names them, and each is there whole before its row."""

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO

from sqlalchemy import Connection, RowMapping, delete, insert, or_, select

from backend.contract import records as r
from backend.contract.base import Json
from backend.contract.queries import PageQuery
from backend.contract.stored import get as get_field
from backend.contract.survey import SurveyQuery
from backend.errors import Conflict, NotFound
from backend.runs.store import WAITING
from backend.services import Services
from backend.storage.statements import newest_first
from backend.storage.tables import run, trunk, upload
from backend.uploads import jsonl
from backend.uploads.compression import unpacked_path
from backend.uploads.conversion import convert
from backend.uploads.encoding import is_guess
from backend.uploads.formats import KEPT

FOLDER = "uploads"
MOST_NOTES = 20
GROWTH = 4
"""How many times the largest file's bytes the rows may take: JSON lines repeat the names of columns, and Parquet is packed."""


def path_of(home: Path, upload_id: int) -> Path:
    """Where an upload lies."""
    return home / FOLDER / f"{upload_id}.jsonl"


def most_bytes(services: Services) -> int:
    """How many bytes the rows of an upload may take."""
    return GROWTH * services.settings.max_upload_bytes


@contextmanager
def partial_file(home: Path) -> Iterator[IO[bytes]]:
    """A file beside the uploads, which is gone afterwards unless it was moved."""
    (home / FOLDER).mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=home / FOLDER, suffix=".partial", delete=False) as file:
        try:
            yield file
        finally:
            Path(file.name).unlink(missing_ok=True)


def keep(
    services: Services,
    name: str,
    file: IO[bytes],
    *,
    suffix: str = KEPT,
    again: bool = True,
    parts: Sequence[r.Upload] = (),
    notes: Sequence[str] = (),
    on_rows: Callable[[int], None] = lambda rows: None,
) -> r.Upload:
    """Make JSON lines of a partial file, record them as an upload, and move them to their place. A crash in between leaves a file that the next upload replaces.

    What it holds and its `suffix` show its kind; without one it is JSON lines. Unless it is to be kept `again`, an upload of this name
    with just this content is answered. Of the `parts` of which it was joined is said what was found in them. Raises Invalid.
    """
    file.flush()
    home, partial = services.settings.home, Path(file.name)
    canonical = partial.with_suffix(".rows.partial")
    try:
        found = convert(partial, suffix.lower(), canonical, most_bytes=most_bytes(services), on_rows=on_rows)
        os.replace(canonical, partial)
    finally:
        canonical.unlink(missing_ok=True)
        unpacked_path(canonical).unlink(missing_ok=True)
    with partial.open("rb") as rows:
        sha256 = hashlib.file_digest(rows, "sha256").hexdigest()
        os.fsync(rows.fileno())
    with services.database.write() as tx:
        same = select(upload).where(upload.c.name == name, upload.c.sha256 == sha256).limit(1)
        earlier = None if again else tx.execute(same).mappings().one_or_none()
        if earlier is not None and path_of(home, earlier["id"]).exists():
            return _upload(earlier)
        values = {
            "name": name,
            "rows": found.rows,
            "columns": found.columns,
            **asdict(found.file),
            **_read_of(parts),
            "duplicates": found.duplicates,
            "empty": found.empty + sum(part.empty or 0 for part in parts),
            "missing": found.missing,
            "notes": list(dict.fromkeys([*notes, *found.notes]))[:MOST_NOTES],
            "size_bytes": partial.stat().st_size,
            "sha256": sha256,
            "created_at": services.clock.stamp(),
        }
        row = tx.execute(insert(upload).values(values).returning(upload)).mappings().one()
        os.replace(partial, path_of(home, row["id"]))
        return _upload(row)


def _read_of(parts: Sequence[r.Upload]) -> dict[str, str | None]:
    """How all of the parts were read, if that is the same; else the encoding of one that was guessed, which a person should check."""
    ways = [part.model_dump(include={"format", "encoding", "separator"}) for part in parts]
    if ways and all(way == ways[0] for way in ways):
        return ways[0]
    guesses = [part.encoding for part in parts if is_guess(part.encoding)]
    return {"encoding": guesses[0]} if guesses else {}


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


def page(tx: Connection, query: PageQuery) -> r.Page[r.Upload]:
    """Uploads, newest first."""
    rows, cursor = newest_first(tx, select(upload), upload.c.id, query)
    return r.Page[r.Upload](items=[_upload(row) for row in rows], next_cursor=cursor)


def columns_before(tx: Connection, upload_id: int, use: str) -> tuple[int, dict[str, Json]] | None:
    """The newest run that read the upload as a task or as pairs, and the columns that it named."""
    query = select(run.c.id, run.c.config).where(run.c.upload_id == upload_id).order_by(run.c.id.desc()).limit(20)
    for run_id, config in tx.execute(query):
        data = config.get("pairs") if use == "pairs" else None
        data = data or get_field(config, "task") or get_field(config, "pairs.task")
        if isinstance(data, dict) and ("chosen_column" in data) == (use == "pairs"):
            usual = SurveyQuery().model_dump()
            return run_id, {name: data[name] for name in usual if data.get(name) != usual[name] and name in data}
    return None


def remove(tx: Connection, upload_id: int) -> None:
    """Forget an upload. Raises NotFound, and Conflict while a run needs it, or a fork that may do steps on it again."""
    get(tx, upload_id)
    parent = run.alias()
    of_trunk = select(1).where(
        trunk.c.run_id == run.c.id, trunk.c.of_run_id == parent.c.id, parent.c.upload_id == upload_id
    )
    uses = or_(run.c.upload_id == upload_id, of_trunk.correlate(run).exists())
    needs = select(run.c.id).where(uses, run.c.status.in_(WAITING)).order_by(run.c.id)
    users = list(tx.execute(needs).scalars())
    if users:
        names = ", ".join(map(str, users[:5]))
        raise Conflict(f"Upload {upload_id} is needed by run {names}; stop or finish what needs it first.")
    tx.execute(delete(upload).where(upload.c.id == upload_id))
