"""Packed files, which are unpacked beside the place where their rows are written."""

import lzma
from collections.abc import Iterator
from pathlib import Path

from backend.uploads.jsonl import refused

CODECS = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
"""What packed a file, by its first bytes."""


def unpacked_path(target: Path) -> Path:
    """Where a file is unpacked of which the rows go to `target`."""
    return target.with_suffix(".unpacked.partial")


def unpacked(source: Path, target: Path, most_bytes: int) -> Path:
    """The file, unpacked if it is packed. Raises Invalid if it is broken, or unpacks to more than `most_bytes`."""
    with source.open("rb") as file:
        head = file.read(8)
    codec = next((CODECS[magic] for magic in CODECS if head.startswith(magic)), None)
    if codec is None:
        return source
    left = most_bytes
    with unpacked_path(target).open("wb") as file:
        for chunk in _chunks(source, codec):
            left -= file.write(chunk)
            if left < 0:
                raise refused(f"The file unpacks to more than {most_bytes:,} bytes; upload a part of it.")
    return unpacked_path(target)


def _chunks(source: Path, codec: str) -> Iterator[bytes]:
    import pyarrow as pa

    try:
        with lzma.open(source) if codec == "xz" else pa.CompressedInputStream(pa.OSFile(str(source)), codec) as file:
            yield from iter(lambda: file.read(2**20), b"")
    except (OSError, EOFError, lzma.LZMAError) as error:
        why = f"a part is missing or broken ({' '.join(str(error).split())[:100]})"
        text = f"The file is packed with {codec} and cannot be unpacked: {why}; pack or copy it again."
        raise refused(text) from None
