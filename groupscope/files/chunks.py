"""A stream of JSON lines in numbered chunks, of which prime-rl seals all but the newest with zstd.

A chunk is NNNNN.jsonl while it is written; once it is full it becomes NNNNN.jsonl.zst, and the plain file goes when that is whole. A line is in
one chunk (prime-rl at commit 551bfc39, src/prime_rl/monitors/file/traces/chunks.py).
"""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO, NamedTuple, cast

from groupscope.files.format import numbered, opened, parsed

SEALED = ".zst"
PIECE = 2**13  # bytes that are decompressed together: of a damaged chunk all before them are there


def chunks_of(place: Path) -> dict[int, Path]:
    """The chunks of a folder in their order, by their number, each under the name that it has while it is plain. Before #3465 prime-rl wrote
    one file with the folder's name.
    """
    found = {number: one.with_suffix("") if one.suffix == SEALED else one for number, one in _numbered(place).items()}
    whole = place.with_name(f"{place.name}.jsonl")
    return {0: whole} if not place.is_dir() and whole.is_file() else found


def _numbered(place: Path) -> dict[int, Path]:
    return numbered(place, r"(\d{5,})\.jsonl(?:\.zst)?")


class Place(NamedTuple):
    """Where a line was, and where it is kept."""

    chunk: int
    line: int
    at: int
    size: int  # compressed
    length: int


class Chunks:
    """The lines of a stream, each read once. As no line of a sealed chunk can be read by itself, they are kept, each compressed, in a
    temporary file.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._chunk, self._bytes, self._line = -1, 0, 0  # as far as it was read
        self._kept = cast(BinaryIO, TemporaryFile())  # noqa: SIM115 — as long as the stream is read
        self.wrong: list[str] = []
        """Of each line and each chunk that cannot be read one sentence."""

    def new(self, *, final: bool) -> Iterator[tuple[Place, Any]]:
        """The objects of the lines since the last call. The last line of the newest chunk may be torn, unless this call is `final`."""
        chunks = chunks_of(self._place)
        for number in [one for one in chunks if one >= self._chunk]:
            if number != self._chunk:
                self._chunk, self._bytes, self._line = number, 0, 0
            for line in self._lines(chunks[number], whole=final or number != max(chunks)):
                found = parsed(line, self.where(self._line))
                if isinstance(found, ValueError):
                    self.wrong.append(str(found))
                else:
                    yield self._keep(line), found

    def _lines(self, path: Path, *, whole: bool) -> Iterator[bytes]:
        from pyarrow import ArrowException

        try:
            with opened_chunk(path) as file:
                skip = self._bytes
                while skip > 0 and (passed := len(file.read(min(skip, PIECE)))):
                    skip -= passed
                for line in file:
                    if not line.endswith(b"\n") and not whole:
                        return
                    self._bytes, self._line = self._bytes + len(line), self._line + 1
                    if line.strip():
                        yield line
        except (ArrowException, OSError) as error:
            name = path.name if path.exists() else path.name + SEALED
            said = f"{self._place.name}/{name} cannot be read behind line {self._line}: {str(error)[:200]}"
            if said not in self.wrong:
                self.wrong.append(said)

    def where(self, line: int, chunk: int | None = None) -> str:
        """How a line is called in a sentence."""
        return f"{self._place.name}/{self._chunk if chunk is None else chunk:05d}.jsonl, line {line}"

    def _keep(self, line: bytes) -> Place:
        import pyarrow as pa

        packed = pa.compress(line, codec="zstd", asbytes=True)
        at = self._kept.seek(0, io.SEEK_END)
        self._kept.write(packed)
        return Place(self._chunk, self._line, at, len(packed), len(line))

    def read(self, place: Place) -> Any:
        """The object of a line that was read before."""
        import pyarrow as pa

        self._kept.seek(place.at)
        packed = self._kept.read(place.size)
        return json.loads(pa.decompress(packed, decompressed_size=place.length, codec="zstd", asbytes=True))


def opened_chunk(path: Path) -> BinaryIO:
    """A chunk by its plain name, to be read from its beginning, plain or sealed. Raises OSError."""
    import pyarrow as pa

    try:
        return opened(path)
    except FileNotFoundError:
        sealed = opened(path.with_name(path.name + SEALED))
        return cast(BinaryIO, io.BufferedReader(cast(Any, pa.input_stream(sealed, compression="zstd")), PIECE))
