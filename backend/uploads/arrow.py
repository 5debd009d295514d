"""Rows of Parquet and Arrow files, the latter as Feather writes them or as `datasets.save_to_disk` streams them."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from backend.uploads import jsonl

BATCH = 32  # rows at a time: each may have megabytes
PARQUET, ARROW_FILE, ARROW_STREAM = b"PAR1", b"ARROW1", b"\xff\xff\xff\xff"


def rows_of(path: Path, head: bytes, notes: list[str]) -> Iterator[jsonl.NumberedRow]:
    """The rows of a file that begins so. Columns that cannot be read are left out, and said in `notes`. Raises Invalid."""
    import pyarrow as pa

    number = 0
    try:
        for batch in _batches(path, head, notes):
            if batch.nbytes > BATCH * jsonl.LONGEST_LINE:
                what = "or one soon after it takes too many bytes; shorten it, or leave it out"
                raise jsonl.wrong(number + 1, what, "row")
            # 64 bits: double
            kinds = {field.name: field.type for field in batch.schema if "float" in str(field.type)}
            for row in batch.to_pylist():
                number += 1
                row |= {name: _shortened(row[name], kind) for name, kind in kinds.items()}
                yield number, {name: jsonl.plain(number, name, value) for name, value in row.items()}, None
    except MemoryError:
        raise  # one of Arrow's own, too
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        kind = "Parquet" if head.startswith(PARQUET) else "Arrow"
        raise jsonl.refused(f"The {kind} file cannot be read: {' '.join(str(error).split())[:200]}") from None


def _batches(path: Path, head: bytes, notes: list[str]) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if head.startswith(PARQUET):
        with pq.ParquetFile(path, memory_map=False, pre_buffer=False, buffer_size=2**20) as file:
            names = _readable(file.schema_arrow, notes)
            if file.metadata.num_rows > jsonl.MOST_ROWS:
                raise jsonl.too_many_rows()
            for batch in file.iter_batches(batch_size=BATCH, use_threads=False, columns=names):
                yield batch.select(names)  # "a.b" names the field b of a, too
        return
    is_stream = head.startswith(ARROW_STREAM)
    with pa.OSFile(str(path)) as file, (pa.ipc.open_stream if is_stream else pa.ipc.open_file)(file) as reader:
        names = _readable(reader.schema, notes)
        for batch in reader if is_stream else map(reader.get_batch, range(reader.num_record_batches)):
            batch.validate(full=True)  # Arrow takes the offsets in a file on trust
            yield from (batch.select(names).slice(first, BATCH) for first in range(0, batch.num_rows, BATCH))


def _readable(schema: Any, notes: list[str]) -> list[str]:
    """The columns of which texts can be made. Raises Invalid if there are none."""
    jsonl.require_names(schema.names)
    lost = [field.name for field in schema if _holds_bytes(field.type)]
    named = f"{', '.join(lost):.200}"
    if lost and len(lost) == len(schema.names):
        text = f"The file holds nothing but bytes, as of images or sounds, in {named}; add a column of texts."
        raise jsonl.refused(text)
    notes += [f"Left out, since they hold bytes, as of images or sounds: {named}"] if lost else []
    return [name for name in schema.names if name not in lost]


def _holds_bytes(kind: Any) -> bool:
    import pyarrow.types as of

    inner = [kind.field(place).type for place in range(kind.num_fields)]
    inner += [getattr(kind, name) for name in ("value_type", "storage_type") if hasattr(kind, name)]
    kinds = (of.is_binary, of.is_large_binary, of.is_fixed_size_binary, of.is_binary_view)
    return any(is_kind(kind) for is_kind in kinds) or any(map(_holds_bytes, inner))


def _shortened(value: Any, kind: Any) -> Any:
    """A value of an Arrow type, each of its numbers of 32 or 16 bits as the shortest that reads back to it: 0.1, not 0.10000000149011612."""
    import pyarrow.types as of

    if value is None:
        return None
    if of.is_float32(kind) or of.is_float16(kind):
        if float(value).is_integer() and abs(value) < 2**53:
            return float(value)
        width, least = ("f", 6) if of.is_float32(kind) else ("e", 3)  # digits that the type always keeps
        rounded = (float(f"{value:.{digits}g}") for digits in range(least, 10))
        return next((one for one in rounded if struct.pack(width, one) == struct.pack(width, value)), float(value))
    if of.is_map(kind):
        return [(_shortened(key, kind.key_type), _shortened(one, kind.item_type)) for key, one in value]
    if of.is_struct(kind):
        return {field.name: _shortened(value[field.name], field.type) for field in kind}
    if of.is_dictionary(kind):
        return _shortened(value, kind.value_type)
    return [_shortened(one, kind.value_type) for one in value] if of.is_nested(kind) else value
