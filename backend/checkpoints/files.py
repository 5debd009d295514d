"""A checkpoint's files, where the backend reaches them: only below `<home>/checkpoints`, whatever a worker wrote."""

import io
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

from fastapi import APIRouter
from sqlalchemy import RowMapping

from backend.answers import Zip, file
from backend.checkpoints import store
from backend.contract import records as r
from backend.contract.home import store_path
from backend.errors import Conflict, NotFound
from backend.runs import store as runs
from backend.services import RowId, ServicesDep, StepNumber

FOLDER = "checkpoints"
MODEL = "model"
CHUNK = 1 << 20


def directory(home: Path, row: RowMapping) -> Path | None:
    """Where a checkpoint lies, links resolved; None outside of our own store."""
    root = (home / FOLDER).resolve()
    place = (store_path(row["store"]) / row["path"]).resolve()
    return place if place.is_relative_to(root) and place != root else None


def holds(home: Path, store: str) -> bool:
    """Whether a worker's store is the one in our home."""
    return store_path(store).resolve() == (home / FOLDER).resolve()


def model_directory(home: Path, row: RowMapping) -> Path:
    """Where a checkpoint's model lies. Raises Conflict where another machine has it, NotFound where it is gone."""
    place = directory(home, row)
    if place is None:
        raise Conflict(
            f"Checkpoint {row['step']} of run {row['run_id']} lies in {row['store']}, at {row['path']}, which the backend "
            "does not reach; copy it from the worker's machine."
        )
    if not (place / MODEL).is_dir():
        raise NotFound(f"The model of checkpoint {row['step']} of run {row['run_id']} is gone from {place}.")
    return place / MODEL


def archive(folder: Path) -> Iterator[bytes]:
    """A zip of a folder's own files, made while it is read. Not compressed: weights do not shrink.

    Breaks off where a file is removed meanwhile, so that a part is never taken for the whole.
    """
    sink, own = _Sink(), folder.resolve()
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.resolve().is_relative_to(own)]
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as zipped:
        for path in paths:
            name = path.relative_to(folder).as_posix()
            with path.open("rb") as file, zipped.open(name, "w", force_zip64=True) as entry:
                while chunk := file.read(CHUNK):
                    entry.write(chunk)
                    yield sink.taken()
    yield sink.taken()


class _Sink(io.RawIOBase):
    """What zipfile writes to, since it cannot yield."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: object, /) -> int:
        chunk = bytes(memoryview(data))  # type: ignore[arg-type]  # zipfile writes bytes
        self._chunks.append(chunk)
        return len(chunk)

    def taken(self) -> bytes:
        """What has been written since the last time."""
        data = b"".join(self._chunks)
        self._chunks.clear()
        return data


def remove(home: Path, run_id: int) -> None:
    """Delete all that a run has in our own store: its checkpoints, and the pairs that it sampled."""
    shutil.rmtree(home / FOLDER / f"run-{run_id}", ignore_errors=True)


router = APIRouter(prefix="/api/v1/runs/{run_id}/checkpoints", tags=["checkpoints"])


@router.get("")
def list_checkpoints(services: ServicesDep, run_id: RowId) -> r.Page[r.Checkpoint]:
    """Checkpoints of the live history, by step."""
    with services.database.read() as tx:
        runs.require(tx, run_id)
        rows = store.live(tx, run_id)
    return r.Page[r.Checkpoint](items=[r.Checkpoint.model_validate(dict(row)) for row in rows])


@router.get("/{step}/model.zip", response_class=Zip)
def download_model(services: ServicesDep, run_id: RowId, step: StepNumber) -> Zip:
    """The directory that `from_pretrained` opens, as a zip."""
    with services.database.read() as tx:
        runs.require(tx, run_id)
        row = store.live_at(tx, run_id, step)
    if row is None:
        raise NotFound(f"Run {run_id} has no checkpoint at step {step}.")
    model = model_directory(services.settings.home, row)
    return file(Zip, f"run-{run_id}-step-{step}.zip", archive(model))
