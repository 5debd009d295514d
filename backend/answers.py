"""Answers that are files; the document says their types."""

from collections.abc import Iterator
from typing import TypeVar

from fastapi.responses import FileResponse, StreamingResponse

NDJSON = "application/x-ndjson"


class Lines(StreamingResponse):
    """JSON, one object a line."""

    media_type = NDJSON


class LinesFile(FileResponse):
    """The same, from the disk."""

    media_type = NDJSON


class Parquet(StreamingResponse):
    """A Parquet file."""

    media_type = "application/vnd.apache.parquet"


class Zip(StreamingResponse):
    """A zip file."""

    media_type = "application/zip"


File = TypeVar("File", bound=StreamingResponse)


def file(kind: type[File], name: str, chunks: Iterator[bytes]) -> File:
    """Chunks as a file that a browser keeps under this name."""
    return kind(chunks, headers={"Content-Disposition": f'attachment; filename="{name}"'})
