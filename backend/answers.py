"""Answers that are files; the document says their types."""

import io
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


class Sink(io.RawIOBase):
    """What a writer that cannot yield writes to: it gives away what was written, and still knows its position."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._written = 0

    def writable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """How much was written."""
        return self._written

    def write(self, data: object, /) -> int:
        """Keep a part until it is taken."""
        chunk = bytes(memoryview(data))  # type: ignore[arg-type]  # bytes, or what lies as they do
        self._chunks.append(chunk)
        self._written += len(chunk)
        return len(chunk)

    def taken(self) -> bytes:
        """What has been written since the last time."""
        data = b"".join(self._chunks)
        self._chunks.clear()
        return data


File = TypeVar("File", bound=StreamingResponse)


def file(kind: type[File], name: str, chunks: Iterator[bytes]) -> File:
    """Chunks as a file that a browser keeps under this name."""
    return kind(chunks, headers={"Content-Disposition": f'attachment; filename="{name}"'})
