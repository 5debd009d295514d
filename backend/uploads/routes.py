"""Routes of uploads."""

from functools import partial
from pathlib import Path
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response

from backend.answers import NDJSON, LinesFile
from backend.contract import records as r
from backend.contract.base import to_json
from backend.contract.queries import ProgressQuery, SplitQuery, UploadQuery, ending_of
from backend.contract.survey import Survey, SurveyQuery
from backend.contract.task import held_out_keys, row_id, source_of
from backend.document import raw_body
from backend.errors import Conflict, Invalid, NotFound
from backend.field_errors import FieldError
from backend.services import PageAsked, RowId, Services, ServicesDep, with_reserve
from backend.uploads import jsonl, store
from backend.uploads.encoding import is_guess
from backend.uploads.reading import COUNTED_BYTES, prompt_key, read
from backend.uploads.survey import survey

router = APIRouter(prefix="/api/v1/uploads", tags=["uploads"])

PREVIEW_ROWS = 20

LINES = {"type": "string", "format": "binary", "description": "CSV, TSV, JSON, JSON lines, Parquet or Arrow."}
_rows_so_far: dict[str, int] = {}
"""By the key that an upload was given, how many of its rows were read."""


@router.post("", status_code=201, openapi_extra=raw_body(NDJSON, LINES))
async def create_upload(services: ServicesDep, request: Request, query: Annotated[UploadQuery, Query()]) -> r.Upload:
    """Store rows, the raw body: CSV, TSV, JSON, JSON lines, Parquet or Arrow. What it holds and the file's ending show which."""
    try:
        with store.partial_file(services.settings.home) as file:
            async for chunk in request.stream():
                file.write(chunk)
            suffix, on_rows = ending_of(query.name + query.suffix), partial(_rows_so_far.__setitem__, query.progress)
            notes = [query.note] if query.note else []
            keep = partial(store.keep, services, query.name, file, suffix=suffix, notes=notes, on_rows=on_rows)
            # once fewer files are read than may be at once
            return await to_thread.run_sync(keep, limiter=services.conversions)
    finally:
        _rows_so_far.pop(query.progress, None)


@router.get("/progress")
def upload_progress(query: Annotated[ProgressQuery, Query()]) -> r.UploadProgress:
    """How many rows of an upload that is under way were read."""
    return r.UploadProgress(rows=_rows_so_far.get(query.key))


@router.post("/join", status_code=201)
async def join_uploads(services: ServicesDep, body: r.UploadJoin) -> r.Upload:
    """Make one upload of several, whose rows follow each other; the parts stay."""
    return await to_thread.run_sync(_joined, services, body, limiter=services.conversions)


def _joined(services: Services, body: r.UploadJoin) -> r.Upload:
    """Raises NotFound and Invalid."""
    parts = [_found(services, one) for one in body.uploads]
    if taken := next((part for part, _ in parts if body.source_column in part.columns), None):
        text = f"{taken.name} has a column {body.source_column} of its own; choose another name"
        raise Invalid(FieldError("source_column", text))
    whole, most = sum(part.size_bytes for part, _ in parts), store.most_bytes(services)
    if whole > most:
        text = f"the {len(parts)} uploads have {whole:,} bytes in all, and one may have {most:,}; join fewer"
        raise Invalid(FieldError("uploads", text))
    with store.partial_file(services.settings.home) as file:
        for part, path in parts:
            with path.open("rb") as rows:
                named = b"{"
                if body.source_column is not None:
                    named = f"{{{to_json(body.source_column)}:{to_json(part.name)},".encode()
                for row in map(bytes.strip, rows):
                    if row not in (b"", b"{}"):  # an earlier version kept both
                        file.write(named + row[1:] + b"\n")
        notes = [note for part, _ in parts for note in part.notes]
        return store.keep(services, body.name, file, parts=[part for part, _ in parts], notes=notes)


@router.post("/keep", status_code=201)
async def keep_rows(services: ServicesDep, body: r.UploadKeep) -> r.Band:
    """Make an upload of some rows of another one: those that a person kept, and what evaluations hold out."""
    return await to_thread.run_sync(_band, services, body, limiter=services.conversions)


def _band(services: Services, body: r.UploadKeep) -> r.Band:
    """Raises NotFound and Invalid."""
    kind, _, number = body.task.source.partition(":")
    if kind != "upload":
        text = "rows are kept of an upload, and this is a data set of the Hub; upload it"
        raise Invalid(FieldError("task.source", text))
    _, path = _found(services, int(number))
    wanted, column = set(body.ids), body.task.prompt_column
    held_out = held_out_keys((prompt_key(row, column) for row in jsonl.rows_of(path)), body.task.held_out)
    trained = {prompt_key(row, column) for row in jsonl.rows_of(path) if row_id(body.task, row) in wanted} - held_out
    if not trained:
        text = f"no row of upload {number} to train on has one of these ids; measure it again"
        raise Invalid(FieldError("ids", text))
    # At most half of the prompts can be held out, so of a small band some of them are left out rather than trained on.
    evaluated = set(sorted(held_out)[: len(trained)])
    sources = set[str]()
    with store.partial_file(services.settings.home) as file:
        for row in jsonl.rows_of(path):
            key = prompt_key(row, column)
            chosen = key in trained and row_id(body.task, row) in wanted
            if chosen:
                sources.add(source_of(body.task.source_column, row))
            if chosen or key in evaluated:
                file.write(f"{to_json(row)}\n".encode())
        upload = store.keep(services, body.name, file, again=False)
    shares = {name: share for name, share in body.task.shares.items() if name in sources}
    return r.Band(upload=upload, held_out=len(evaluated) / (len(evaluated) + len(trained)), shares=shares)


@router.get("")
def list_uploads(services: ServicesDep, query: PageAsked) -> r.Page[r.Upload]:
    """Uploads, newest first."""
    with services.database.read() as tx:
        return store.page(tx, query)


@router.get("/{upload_id}")
def preview_upload(services: ServicesDep, upload_id: RowId) -> r.UploadPreview:
    """An upload and its first rows; of long values the beginning."""
    upload, path = _found(services, upload_id)
    to_check = jsonl.word_beyond_ascii(path) if is_guess(upload.encoding) else None
    return r.UploadPreview(upload=upload, rows=jsonl.preview(path, PREVIEW_ROWS), to_check=to_check)


@router.get("/{upload_id}/split")
def split_upload(services: ServicesDep, upload_id: RowId, query: Annotated[SplitQuery, Query()]) -> r.Split:
    """How many rows a task would train on and hold out, in all and of each source; of an upload of at most 32 MiB."""
    upload, path = _found(services, upload_id)
    if upload.size_bytes > COUNTED_BYTES:
        text = f"Upload {upload_id} is larger than {COUNTED_BYTES // 2**20} MiB; a run counts its rows when it begins."
        raise Conflict(text)
    return read(path, query).split


@router.get("/{upload_id}/survey")
def survey_upload(services: ServicesDep, upload_id: RowId, query: Annotated[SurveyQuery, Query()]) -> Survey:
    """Which column is what, three rows as the model will read them, and what answers are compared with."""
    _, path = _found(services, upload_id)
    found = survey(path, query)
    if query.prompt_column is not None:
        return found
    with services.database.read() as tx:
        earlier = store.columns_before(tx, upload_id, query.use)
    if earlier is None or all(found.fields.get(name) == value for name, value in earlier[1].items()):
        return found
    again = survey(path, SurveyQuery.model_validate({"use": query.use, **earlier[1]}))
    said = [f"the columns are those of run {earlier[0]}", *again.said]
    return again.model_copy(update={"said": said, "columns": found.columns})


@router.get("/{upload_id}/content", response_class=LinesFile)
def upload_content(services: ServicesDep, upload_id: RowId) -> LinesFile:
    """The rows as JSON lines."""
    upload, path = _found(services, upload_id)
    return LinesFile(path, media_type=NDJSON, filename=f"{upload.id}.jsonl")


def _found(services: Services, upload_id: int) -> tuple[r.Upload, Path]:
    with services.database.read() as tx:
        upload = store.get(tx, upload_id)
    path = store.path_of(services.settings.home, upload_id)
    if not path.exists():
        raise NotFound(f"The file of upload {upload_id} is gone from the data directory.")
    return upload, path


@router.delete("/{upload_id}", status_code=204)
@with_reserve
def delete_upload(services: ServicesDep, upload_id: RowId) -> Response:
    """Delete an upload that no waiting run needs."""
    with services.database.write() as tx:
        store.remove(tx, upload_id)
    store.path_of(services.settings.home, upload_id).unlink(missing_ok=True)
    return Response(status_code=204)
