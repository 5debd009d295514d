"""A checkpoint's files, where the backend reaches them: below `<home>/checkpoints`, whatever a worker wrote, and in the bucket of its settings."""

import hashlib
import json
import shutil
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from fastapi import APIRouter
from sqlalchemy import RowMapping

from backend.answers import Sink, Zip, file
from backend.bucket.bucket import COPIES, Bucket, BucketTrouble, Damaged
from backend.checkpoints import store
from backend.contract import records as r
from backend.contract.home import store_address, store_path
from backend.errors import Conflict, NotFound, Unavailable
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
        bucket = row["store"].startswith("s3://")
        advice = "name the bucket in its GROUPSCOPE_CHECKPOINTS, too" if bucket else "copy it from the worker's machine"
        raise Conflict(
            f"Checkpoint {row['step']} of run {row['run_id']} lies in {row['store']}, at {row['path']}, which the backend "
            f"does not reach; {advice}."
        )
    if not (place / MODEL).is_dir():
        raise NotFound(f"The model of checkpoint {row['step']} of run {row['run_id']} is gone from {place}.")
    return place / MODEL


def archive(folder: Path) -> Iterator[bytes]:
    """A zip of a folder's own files."""
    own = folder.resolve()
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.resolve().is_relative_to(own)]
    return _zipped((path.relative_to(folder).as_posix(), _chunks(path)) for path in paths)


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk


def archive_from(bucket: Bucket, row: RowMapping) -> Iterator[bytes]:
    """A zip of a checkpoint's model in the bucket. Raises NotFound where it is gone or damaged, Unavailable where the bucket is away."""
    which = f"Checkpoint {row['step']} of run {row['run_id']}"
    try:
        files = json.loads(bucket.manifest(row["path"], row["sha256"]))["files"]
    except Damaged as damaged:
        raise NotFound(f"{which} cannot be downloaded: {damaged}.") from None
    except BucketTrouble as trouble:
        raise Unavailable(f"{which} cannot be downloaded now: {trouble}.") from None
    model = {name.removeprefix(f"{MODEL}/"): one for name, one in files.items() if name.startswith(f"{MODEL}/")}
    return _zipped(
        (name, _as_saved(bucket.chunks(f"{row['path']}/{MODEL}/{name}"), one["sha256"])) for name, one in model.items()
    )


def _as_saved(chunks: Iterator[bytes], sha256: str) -> Iterator[bytes]:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
        yield chunk
    if digest.hexdigest() != sha256:
        raise Damaged("a file in the bucket is not what was saved")


def _zipped(members: Iterable[tuple[str, Iterator[bytes]]]) -> Iterator[bytes]:
    """A zip, made while its members are read. Not compressed: weights do not shrink.

    Breaks off where a member is removed meanwhile, so that a part is never taken for the whole.
    """
    sink = Sink()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as zipped:
        for name, chunks in members:
            with zipped.open(name, "w", force_zip64=True) as entry:
                for chunk in chunks:
                    entry.write(chunk)
                    yield sink.taken()
    yield sink.taken()


def remove(home: Path, run_id: int) -> None:
    """Delete all that a run has in our own home: its checkpoints, copies of them, and the pairs that it sampled."""
    for folder in (FOLDER, COPIES):
        shutil.rmtree(home / folder / f"run-{run_id}", ignore_errors=True)


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
    bucket = services.bucket
    if bucket is not None and store_address(row["store"]) == bucket.address:
        zipped = archive_from(bucket, row)
    else:
        zipped = archive(model_directory(services.settings.home, row))
    return file(Zip, f"run-{run_id}-step-{step}.zip", zipped)
