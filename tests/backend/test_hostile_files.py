"""Files as anybody may send them: each ends in the right rows or in one clear sentence, and the backend stays alive and small."""

import bz2
import gzip
import io
import json
import lzma
import zipfile
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from acting import api_error
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import Site
from serving import Backend

from backend.contract.client import ApiError
from backend.contract.queries import ending_of
from backend.errors import Invalid
from backend.uploads import conversion, documents
from backend.uploads.formats import read
from backend.uploads.jsonl import MOST_ROWS, preview, rows_of

# Each file is read by a process of its own, which shows no warnings.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning:ijson")]

TEXT = "question,answer\nWie heißt „größer“ – auf Englisch?,bigger\nça va,yes\n"
ROWS = [{"question": "Wie heißt „größer“ – auf Englisch?", "answer": "bigger"}, {"question": "ça va", "answer": "yes"}]
PLAIN, PLAIN_ROWS = (
    "question,answer\n1 + 1,2\n2 + 2,4\n",
    [{"question": "1 + 1", "answer": "2"}, {"question": "2 + 2", "answer": "4"}],
)
JAPANESE = "問題,答え\n日本の首都はどこですか。,東京\n一番高い山は何ですか。,富士山\n水は何度で沸騰しますか。,百度\n"
SIMPLE = [{"a": "1", "b": "2"}]


def parquet(table: pa.Table, **how: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, **how)
    return file.getvalue()


def zipped(names: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in names.items():
            archive.writestr(name, content)
    return file.getvalue()


def arrow(table: pa.Table, written: Callable[..., Any]) -> bytes:
    file = io.BytesIO()
    with written(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=1)
    return file.getvalue()


RIGHT: dict[str, tuple[str, bytes, list[dict[str, Any]], tuple[object, ...]]] = {
    # ---- encodings
    "UTF-8": ("a.csv", TEXT.encode(), ROWS, ("csv", None, "comma")),
    "UTF-8 with a mark": ("a.csv", TEXT.encode("utf-8-sig"), ROWS, ("csv", None, "comma")),
    "UTF-16 LE with a mark": ("a.csv", b"\xff\xfe" + TEXT.encode("utf-16-le"), ROWS, ("csv", "utf-16", "comma")),
    "UTF-16 BE with a mark": ("a.csv", b"\xfe\xff" + TEXT.encode("utf-16-be"), ROWS, ("csv", "utf-16", "comma")),
    "UTF-16 LE": ("a.csv", TEXT.encode("utf-16-le"), ROWS, ("csv", "utf-16-le", "comma")),
    "UTF-16 BE": ("a.csv", TEXT.encode("utf-16-be"), ROWS, ("csv", "utf-16-be", "comma")),
    "UTF-16 LE of letters that UTF-8 has": ("a.csv", PLAIN.encode("utf-16-le"), PLAIN_ROWS, ("csv", "utf-16-le", "comma")),
    "UTF-32 with a mark": ("a.csv", TEXT.encode("utf-32"), ROWS, ("csv", "utf-32", "comma")),
    "Windows' Latin letters": ("a.csv", TEXT.encode("cp1252"), ROWS, ("csv", "cp1252", "comma")),
    "Shift JIS": (
        "a.csv",
        JAPANESE.encode("shift_jis"),
        [dict(zip(["問題", "答え"], line.split(","), strict=True)) for line in JAPANESE.splitlines()[1:]],
        ("csv", "cp932", "comma"),
    ),
    "JSON lines in UTF-16": ("a.jsonl", '{"a": "ä"}\n{"a": "b"}\n'.encode("utf-16"), [{"a": "ä"}, {"a": "b"}], ("jsonl", "utf-16", None)),
    "JSON in UTF-16": ("a.json", '[{"a": "ä"}, {"a": "b"}]'.encode("utf-16"), [{"a": "ä"}, {"a": "b"}], ("json", "utf-16", None)),
    "JSON with a mark": ("a.json", '[{"a": "ä"}]'.encode("utf-8-sig"), [{"a": "ä"}], ("json", None, None)),
    # ---- tables
    "tabs": ("a.tsv", b"a\tb\n1\t2\n", SIMPLE, ("csv", None, "tab")),
    "semicolons, and commas in the cells": ("a.csv", b"a;b\n1,5;2,5\n1,5, or so;3\n", [{"a": "1,5", "b": "2,5"}, {"a": "1,5, or so", "b": "3"}], ("csv", None, "semicolon")),
    "bars": ("a.csv", b"a|b\n1|2\n", SIMPLE, ("csv", None, "bar")),
    "quotes that are doubled, and a line break in a cell": (
        "a.csv",
        b'a,b\n"say ""hi"", please","two\nlines"\n',
        [{"a": 'say "hi", please', "b": "two\nlines"}],
        ("csv", None, "comma"),
    ),
    "lines that end as on an old Macintosh": ("a.csv", b"a,b\r1,2\r", SIMPLE, ("csv", None, "comma")),
    "lines that end as on Windows": ("a.csv", b"a,b\r\n1,2\r\n", SIMPLE, ("csv", None, "comma")),
    "short rows": ("a.csv", b"a,b\n1\n1,2\n", [{"a": "1", "b": None}, {"a": "1", "b": "2"}], ("csv", None, "comma")),
    "a column without a name": ("a.csv", b",a\nk,x\n1,y\n", [{"column 1": "k", "a": "x"}, {"column 1": "1", "a": "y"}], ("csv", None, "comma")),
    "formulas": ("a.csv", b"a,b\n=cmd|'/c calc'!A0,@SUM(1+1)\n", [{"a": "=cmd|'/c calc'!A0", "b": "@SUM(1+1)"}], ("csv", None, "comma")),
    "a zero byte far below": ("a.csv", b"a,b\n" + (b"x" * 70 + b",y\n") * 20_000 + b"1\x00,2\n", [{"a": "x" * 70, "b": "y"}] * 20, ("csv", None, "comma")),
    "numbers of a million digits, as a text": ("a.csv", b"a,b\n" + b"9" * 1_000_000 + b",2\n", [{"a": "9" * 2000 + " …", "b": "2"}], ("csv", None, "comma")),
    "one column": ("a.csv", b"prompt\nhello\n", [{"prompt": "hello"}], ("csv", None, "comma")),
    "lines of a text": ("a.txt", b"Say hello, please.\n\nSay goodbye.\n", [{"prompt": "Say hello, please."}, {"prompt": "Say goodbye."}], ("csv", None, None)),
    # ---- JSON
    "JSON lines by another name": ("rows", b'{"a": "1", "b": "2"}\n', SIMPLE, ("jsonl", None, None)),
    "JSON lines called JSON": ("a.json", b'{"a": "1"}\n{"a": "2"}\n', [{"a": "1"}, {"a": "2"}], ("jsonl", None, None)),
    "one line of JSON lines called JSON": ("a.json", b'{"a": "1"}', [{"a": "1"}], ("jsonl", None, None)),
    "a chat on each line, called JSON": (
        "a.json",
        b'{"prompt": [{"role": "user", "content": "hi"}]}\n' * 2,
        [{"prompt": [{"role": "user", "content": "hi"}]}] * 2,
        ("jsonl", None, None),
    ),
    "a list in an object": ("a.json", b'{"version": 1, "tags": ["x"], "data": [\n{"a": "1", "b": "2"}\n]}', SIMPLE, ("json", None, None)),
    "a list in an object, on one line": ("a.json", b'{"data": [{"a": "1", "b": "2"}]}', SIMPLE, ("json", None, None)),
    "mixed types": ("a.jsonl", b'{"a": 1}\n{"a": "x"}\n{"a": [null, {"b": true}]}\n', [{"a": 1}, {"a": "x"}, {"a": [None, {"b": True}]}], ("jsonl", None, None)),
    "half of a surrogate pair": ("a.jsonl", b'{"a": "x\\ud83dy"}\n', [{"a": "x\ufffdy"}], ("jsonl", None, None)),
    # ---- Parquet
    "Parquet": ("a.parquet", parquet(pa.table({"a": ["x", None], "n": [1.5, float("nan")], "l": [[1], []]})), [{"a": "x", "n": 1.5, "l": [1]}, {"a": None, "n": None, "l": []}], ("parquet", None, None)),
    "Parquet with numbers of 32 and 16 bits": (
        "a.parquet",
        parquet(pa.table({
            "a": pa.array([0.1, 16777215.0], pa.float32()),
            "b": pa.array([0.1, 2049 - 1], pa.float16()),
            "f": pa.array([1 / 64, None], pa.float16()),
            "c": pa.array([[{"d": 0.3}], None], pa.list_(pa.struct([("d", pa.float32())]))),
            "e": [0.1, 1e300],
        })),
        [{"a": 0.1, "b": 0.1, "f": 1 / 64, "c": [{"d": 0.3}], "e": 0.1}, {"a": 16777215.0, "b": 2048.0, "f": None, "c": None, "e": 1e300}],
        ("parquet", None, None),
    ),
    "Parquet with decimals": (
        "a.parquet",
        parquet(pa.table({"a": pa.array([Decimal("12345678901234567.10"), Decimal("2.50")], pa.decimal128(20, 2)), "b": pa.array([Decimal(7), None], pa.decimal128(20, 0))})),
        [{"a": "12345678901234567.10", "b": 7}, {"a": "2.50", "b": None}],
        ("parquet", None, None),
    ),
    "JSON with more digits than a number of 64 bits keeps": (
        "a.json",
        b'[{"a": 12345678901234567.10, "b": 0.1, "c": [1e400, 1e5]}, {"a": 2.5}]',
        [{"a": "12345678901234567.10", "b": 0.1, "c": ["1E+400", 100000.0]}, {"a": 2.5}],
        ("json", None, None),
    ),
    "Parquet by the name of a table": ("a.csv", parquet(pa.table({"a": ["1"], "b": ["2"]})), SIMPLE, ("parquet", None, None)),
}  # fmt: skip


AB = [{"q": "x", "a": "1"}, {"q": "y", "a": "2"}, {"q": "z", "a": None}]
LINES = b'{"q": "x", "a": "1"}\n{"q": "y", "a": "2"}\n{"q": "z", "a": null}\n'
CELLS = "q,a\nx,1\ny,2\nz,\n"
PICTURES = pa.table(
    {
        "q": list("xyz"),
        "a": ["1", "2", None],
        "image": [{"bytes": b"\x89PNG", "path": "p"}] * 3,
        "raw": pa.array([[b"a"]] * 3, pa.list_(pa.binary())),
    }
)
INDEX, BYTES, ONE = (
    "Left out: the index, which pandas writes",
    "Left out, since they hold bytes, as of images or sounds: image, raw",
    "The file was read as one row",
)
FRAME = pd.DataFrame(AB, index=[3, 5, 9])
NOTED: dict[str, tuple[str, bytes | str, list[dict[str, Any]], str]] = {
    "pandas' JSON": ("a.json", FRAME.to_json(), AB, INDEX),
    "pandas' JSON by the name of a table": ("a.csv", FRAME.to_json(indent=1), AB, INDEX),
    "pandas' JSON with an index of words": ("a.json", FRAME.set_index(pd.Index(list("uvw"))).to_json(), AB, INDEX),
    "pandas' split": ("a.jsonl", FRAME.to_json(orient="split"), AB, INDEX),
    "pandas' table": ("a.json", FRAME.to_json(orient="table"), AB, INDEX),
    "pandas' rows by their index": ("a.json", FRAME.to_json(orient="index"), AB, "Each name in the JSON stands for a row; these were left out: 3"),
    "rows by their ids": ("a.json", json.dumps({f"id {n}": {"q": row["q"], "of": [{"x": 1}]} for n, row in enumerate(AB)}), [{"q": row["q"], "of": [{"x": 1}]} for row in AB], "left out: id 0"),
    "a list for each column": ("a.json", json.dumps(FRAME.to_dict(orient="list")), AB, ""),
    "a list of chats beside one of texts": ("a.json", '{"q": [[{"role": "user", "content": "x"}], []], "a": ["1", "2"]}', [{"q": [{"role": "user", "content": "x"}], "a": "1"}, {"q": [], "a": "2"}], ""),
    "several lists of rows": ("a.json", json.dumps({"tags": ["x"], "train": AB, "test": AB[:1]}), AB, "The rows are those of the list train; left out: test, tags"),
    "a row that is alone": ("a.jsonl", '{"q": "x", "tests": [{"in": 1}, {"in": 2}], "a": {"b": "1"}}', [{"q": "x", "tests": [{"in": 1}, {"in": 2}], "a": {"b": "1"}}], ONE),
    "a chat that is alone": ("a.jsonl", '{"q": [{"role": "user", "content": "x"}], "a": ["1"]}', [{"q": [{"role": "user", "content": "x"}], "a": ["1"]}], ONE),
    "a document called JSON lines": ("a.jsonl", json.dumps(AB), AB, ""),
    "a document of several lines called JSON lines": ("a.jsonl", json.dumps({"data": AB}, indent=2), AB, ""),
    "objects of several lines, one behind the other": ("a.jsonl", "\n".join(json.dumps(row, indent=2) for row in AB), AB, ""),
    "JSON lines called a table": ("a.csv", LINES, AB, ""),
    "a table called JSON": ("a.json", CELLS, AB, ""),
    "a table called JSON lines": ("a.jsonl", CELLS, AB, ""),
    "a table called a text": ("a.txt", CELLS, AB, ""),
    "prompts in braces": ("a.txt", '{"a": 1}, hi\n{name}, hi\n[INST]', [{"prompt": '{"a": 1}, hi'}, {"prompt": "{name}, hi"}, {"prompt": "[INST]"}], ""),
    "NaN": ("a.json", '[{"a": NaN, "b": "NaN"}]', [{"a": None, "b": "NaN"}], ""),
    "NaN in JSON lines": ("a.jsonl", '{"a": NaN, "b": "NaN"}\n{"b":  "NaN"}\n', [{"a": None, "b": "NaN"}, {"b": "NaN"}], ""),
    "Excel's line for the separator": ("a.csv", '"sep=;"\r\nq;a\r\n"x,1,1";1\r\n', [{"q": "x,1,1", "a": "1"}], ""),
    "Excel's line for another separator": ("a.csv", "sep=^\nq^a\nx^1\n", [{"q": "x", "a": "1"}], ""),
    "titles": ("a.csv", "Sums;;\nof 3 May, 2024;;\nBy:;me;\n;;\nq;a;t\nx;1;\ny;2;u\n", [{"q": "x", "a": "1", "t": None}, {"q": "y", "a": "2", "t": "u"}], "Skipped above the table: Sums / of 3 May, 2024 / By: / me"),
    "one column with semicolons": ("a.csv", "q\nfoo; bar\nx; y\nu; v\n", [{"q": "foo; bar"}, {"q": "x; y"}, {"q": "u; v"}], ""),
    "pandas' index": ("a.csv", FRAME.to_csv(), AB, "Left out: the first column, numbers without a name"),
    "pandas' index, written twice": ("a.csv", ",Unnamed: 0,q\n0,3,x\n1,5,y\n", [{"q": "x"}, {"q": "y"}], "Left out: the first 2 columns, numbers without"),
    "gzip": ("a.jsonl.gz", gzip.compress(LINES), AB, ""),
    "bzip2, of lines of a text": ("a.txt.bz2", bz2.compress(b"a, b\nc, d\n"), [{"prompt": "a, b"}, {"prompt": "c, d"}], ""),
    "xz": ("a.csv.xz", lzma.compress(CELLS.encode("utf-16")), AB, ""),
    "zstd": ("a.parquet.zst", pa.compress(parquet(PICTURES), "zstd", asbytes=True), AB, BYTES),
    "an Arrow stream": ("data.arrow", arrow(PICTURES, pa.ipc.new_stream), AB, BYTES),
    "an Arrow file": ("a.feather", arrow(PICTURES, pa.ipc.new_file), AB, BYTES),
    "a column of bytes beside a field of its name": ("a.parquet", parquet(pa.table({"a.b": [b"x"], "a": [{"b": "t"}]})), [{"a": {"b": "t"}}], "sounds: a.b"),
}  # fmt: skip


def converted(folder: Path, name: str, content: bytes | Callable[[], bytes]) -> conversion.Contents:
    """As an upload becomes rows, in this process: with the limits that each file is read under it takes a second."""
    (folder / "sent").write_bytes(content() if callable(content) else content)
    rows = folder / "rows"
    return conversion.canonical(folder / "sent", ending_of(name), rows, 10**9, lambda number: None)


@pytest.mark.parametrize("case", RIGHT)
def test_the_rows_are_found_and_how_they_were_written(tmp_path: Path, case: str) -> None:
    name, content, rows, how = RIGHT[case]
    file = converted(tmp_path, name, content).file
    assert (file.format, file.encoding, file.separator) == how
    assert preview(tmp_path / "rows", 20) == rows


@pytest.mark.parametrize("case", NOTED)
def test_a_file_is_read_by_what_it_holds_and_what_is_left_out_of_it_is_said(tmp_path: Path, case: str) -> None:
    name, content, rows, note = NOTED[case]
    notes = converted(tmp_path, name, content.encode() if isinstance(content, str) else content).notes
    assert preview(tmp_path / "rows", 20) == rows
    assert (note in "; ".join(notes), len(notes)) == (True, int(bool(note)))


def feather(frame: pd.DataFrame) -> bytes:
    return arrow(pa.Table.from_pandas(frame, preserve_index=False), pa.ipc.new_file)


WRITTEN: list[tuple[str, Callable[[pd.DataFrame], str | bytes]]] = [
    *((name, partial(pd.DataFrame.to_json, orient=how)) for how in ("records", "columns", "index", "split", "table") for name in ("a.json", "a.jsonl", "a.csv")),
    *((name, partial(pd.DataFrame.to_json, orient="records", lines=True)) for name in ("a.json", "a.txt", "a.csv")),
    *((name, partial(pd.DataFrame.to_csv, index=index, quoting=1)) for index in (True, False) for name in ("a.csv", "a.tsv", "a")),
    ("a.csv", lambda frame: "sep=;\n" + frame.to_csv(index=False, quoting=1, sep=";")),
    ("a.csv", lambda frame: "Our problems;;\n;;\n" + frame.to_csv(index=False, quoting=1, sep=";")),
    ("a.json", lambda frame: json.dumps(frame.to_dict(orient="list"))),
    ("a.arrow", feather),
]  # fmt: skip


@settings(max_examples=examples(100))
@given(
    texts=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1), min_size=4, max_size=9),
    written=st.sampled_from(WRITTEN),
    packed=st.sampled_from([bytes, gzip.compress, bz2.compress, partial(pa.compress, codec="zstd", asbytes=True)]),
)
def test_a_table_is_read_as_it_was_whatever_pandas_writes_it_as(
    texts: list[str], written: tuple[str, Callable[[pd.DataFrame], str | bytes]], packed: Callable[[bytes], bytes]
) -> None:
    rows = [{"question": text, "answer": str(number)} for number, text in enumerate(texts)]
    name, write = written
    content = write(pd.DataFrame(rows))
    with TemporaryDirectory() as folder:
        converted(Path(folder), name, packed(content.encode() if isinstance(content, str) else content))
        assert list(rows_of(Path(folder) / "rows")) == rows


@pytest.mark.parametrize("largest", [0, documents.LARGEST], ids=["streamed", "at once"])
def test_a_list_in_a_large_document_is_found_and_one_within_rows_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, largest: int
) -> None:
    monkeypatch.setattr(documents, "LARGEST", largest)
    converted(tmp_path, "a.json", json.dumps({"version": 1, "data": {"rows": AB}}).encode())
    assert preview(tmp_path / "rows", 20) == AB
    chats = {"q": {str(n): [{"role": "user", "content": "x"}] for n in range(3)}}
    if largest:
        assert converted(tmp_path, "a.json", json.dumps(chats).encode()).columns == ["q"]
    else:
        with pytest.raises(Invalid, match="no list of objects"):
            converted(tmp_path, "a.json", json.dumps(chats).encode())


REFUSED: dict[str, tuple[str, bytes | Callable[[], bytes], str]] = {
    "nothing": ("a.csv", b"", "The file is empty; its first row names the columns"),
    "blank lines": ("a.csv", b"\n \r\n\t\n", "The file is empty"),
    "a mark and nothing else": ("a.csv", b"\xff\xfe", "The file is empty"),
    "names of columns alone": ("a.csv", b"a,b\n", "The file holds no rows, or nothing but the names of columns"),
    "empty cells alone": ("a.csv", b"a,b\n,\n,\n", "The file holds no rows"),
    "a broken byte among letters of UTF-8": ("a.csv", b"a,b\n" + "ä,ö\n".encode() * 50 + b"x\xff,y\n", "line 52: has a byte that is not UTF-8"),
    "a broken byte in JSON lines": ("a.jsonl", '{"a": "äöü"}\n'.encode() * 9 + b'{"a": "\xff"}\n', "line 10: is not UTF-8 (byte 8)"),
    "half a letter of UTF-16": ("a.csv", TEXT.encode("utf-16")[:-1], "has a byte that is not UTF-16"),
    "a quote that nothing closes": ("a.csv", b'a,b\n1,2\n"3,4\n5,6\n', "line 3: cannot be read: a quotation mark opens a cell, and nothing closes it"),
    "a quote that nothing closes for megabytes": ("a.csv", b'a,b\n1,2\n"3,4\n' + b"5,6\n" * 2_000_000, "line 3: cannot be read: a cell has more than 4 MiB, or a quotation mark"),
    "letters after a closing quote": ("a.csv", b'a,b\n"1" inch,2\n', "line 2: cannot be read: a cell goes on after the quotation mark"),
    "a row with too many cells": ("a.csv", b"a,b\n1,2\n1,2,3\n", "line 3: has 3 cells, and the first row names 2; put a cell that holds the separator"),
    "100,000 columns": ("a.csv", ",".join(f"c{n}" for n in range(100_000)).encode() + b"\n1\n", "The file has 100,000 columns; an upload may have 256"),
    "100,000 columns of JSON": ("a.jsonl", json.dumps({f"c{n}": n for n in range(100_000)}).encode(), "line 1: brings the file to 100,000 columns; an upload may have 256"),
    "a column that is called twice": ("a.csv", b"a,a\n1,2\n", "Two columns are called a; rename one."),
    "no names of columns": ("a.csv", b"1_0,2\n3,4\n", "The first row of a table names its columns, and here 1_0 stands there"),
    "a name that is nearly a number": ("a.csv", b"1" * 200_000 + b"x,b\n1,2\n", "line 2: has a column whose name begins '11111111111111111111' and has 200,001 letters, not 200"),
    "a line of JSON, hardly longer than 4 MiB": ("a.jsonl", lambda: b'{"a": "' + b"x" * 4 * 2**20 + b'"}\n', "line 1: is longer than 4 MiB"),
    "zero bytes": ("a.csv", b"a,b\n1\x00,2\n", "The file is not a text: it has zero bytes"),
    "a program": ("a.csv", b"\x7fELF" + bytes(range(256)) * 20, "The file is not a text"),
    "JSON lines nested 100,000 deep": ("a.jsonl", b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "line 1: is nested too deeply"),
    "JSON lines nested 100 deep": ("a.jsonl", b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}", "line 1: has a value in column a that is nested deeper than 64 levels"),
    "JSON lines nested 900 deep": ("a.jsonl", b'{"a": ' + b"[" * 900 + b"]" * 900 + b"}", "nested deeper than 64 levels"),
    "JSON lines that begin with nothing to end": ("a.jsonl", b'{"a": 1}\n{"a": \n', "line 2: is not valid JSON: Expecting value at column"),
    "JSON lines that are texts": ("a.jsonl", b'"x"\n', "line 1: is a string, not an object"),
    "a number of a million digits in JSON lines": ("a.jsonl", b'{"a": ' + b"9" * 1_000_000 + b"}", "line 1: has a number that cannot be read"),
    "infinity": ("a.jsonl", b'{"a": Infinity}', "line 1: has a value in column a that holds a number that is not finite"),
    "a number above all": ("a.jsonl", b'{"a": 1e999}', "line 1: has a value in column a that holds a number that is not finite"),
    "a number below all, in a list in an object": ("a.jsonl", b'{"a": 1}\n{"a": {"b": [-1e999]}}', "line 2: has a value in column a that holds a number"),
    "a column whose name is long": ("a.jsonl", b'{"' + b"x" * 201 + b'": 1}', "has a column whose name begins 'xxx"),
    "257 columns, one on each line": ("a.jsonl", b"\n".join(b'{"%d": 1}' % n for n in range(257)), "line 257: brings the file to 257 columns"),
    "infinity in a document": ("a.json", b'[{"a": 1}, {"a": -Infinity}]', "row 2: has -Infinity in column a"),
    "no list in the JSON": ("a.json", b'{\n"a": 1}', "The JSON holds no list of objects"),
    "a list of numbers": ("a.json", b"[1, 2]", "row 1: is not an object"),
    "JSON that stops": ("a.json", b'[{"a": 1}, {"a"', "The file is not valid JSON"),
    "JSON lines that are lists": ("a.jsonl", b'{"a": 1}\n[1]\n', "line 2: is an array, not an object"),
    "a zip archive": ("a.csv", zipped({"a.csv": b"a,b\n1,2\n"}), "The file is a zip archive or an Excel file. Save it as CSV"),
    "a zip bomb": ("a.xlsx", zipped({"xl/sheet.xml": bytes(50_000_000)}), "The file is a zip archive or an Excel file"),
    "half of a packed file": ("a.csv.gz", gzip.compress(TEXT.encode())[:-9], "The file is packed with gzip and cannot be unpacked: a part is missing"),
    "a file that is packed twice": ("a.csv.gz", gzip.compress(bz2.compress(b"a")), "The file is packed with bz2 twice"),
    "an archive of files": ("a.tar.gz", gzip.compress(b"a.csv".ljust(257, b"\0") + b"ustar" + bytes(250) + b"a,b\n1,2\n"), "The file is a tar archive. Save it as CSV"),
    "zero bytes, packed": ("a.csv.gz", gzip.compress(bytes(5_000_000)), "The file is not a text: it has zero bytes"),
    "lists of unequal lengths": ("a.json", b'{"q": ["x", "y", "z"], "a": ["1"]}', "do not have equally many values: q has 3 and a has 1"),
    "lists without names": ("a.json", b'[["x", "1"], ["y", "2"]]', 'write {"prompt": \u2026, "answer": \u2026}, with pandas by to_json(path, orient="records")'),
    "a row that is shorter than the columns": ("a.json", b'{"columns": ["q", "a"], "data": [["x", "1"], ["y"]]}', "row 2: is not a list of 2 cells"),
    "names that may be columns or rows": ("a.json", b'{"x": {"q": "1", "a": "2"}, "y": {"q": "3", "a": "4"}}', "It is not clear which of the names"),
    "values with numbers for names": ("a.json", b'{"0": "x", "1": "y"}', "It is not clear which of the names"),
    "splits of lists": ("a.json", b'{"train": {"q": ["x"]}, "test": {"q": ["y"]}}', "It is not clear which of the names"),
    "what a saved data set says of itself": ("state.json", b'{"_data_files": [{"filename": "data.arrow"}], "_fingerprint": "x"}', "and holds no rows; upload the .arrow files"),
    "a text below the numbers of pandas' index": ("a.csv", b",q\n" + b"".join(b"%d,x\n" % n for n in range(60)) + b"k,x\n", "line 62: has 'k' below numbers in a column without a name"),
    "half of an Arrow stream": ("a.arrow", arrow(pa.table({"a": ["x"]}), pa.ipc.new_stream)[:-100], "The Arrow file cannot be read"),
    "a PDF": ("a.pdf", b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "The file is a PDF"),
    "a Parquet file that stops": ("a.parquet", parquet(pa.table({"a": list(range(1000))}))[:-100], "The Parquet file cannot be read"),
    "nothing but Parquet's mark": ("a.parquet", b"PAR1", "The Parquet file cannot be read"),
    "a broken Parquet file": ("a.parquet", b"PAR1" + bytes(1000) + b"\xff\xff\xff\x7fPAR1", "The Parquet file cannot be read"),
    "two columns of one name in Parquet": ("a.parquet", parquet(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])), "Two columns are called a"),
    "100,000 columns of Parquet": ("a.parquet", lambda: parquet(pa.table({f"c{n}": [n] for n in range(20_000)})), "The file has 20,000 columns"),
    "pictures in Parquet": ("a.parquet", parquet(pa.table({"image": [b"\x89PNG"]})), "The file holds nothing but bytes, as of images or sounds, in image"),
    "infinity in Parquet": ("a.parquet", parquet(pa.table({"a": [float("inf")]})), "row 1: has a value in column a that holds a number that is not finite"),
    "a date after the last of all": ("a.parquet", parquet(pa.table({"a": pa.array([2**62], pa.timestamp("us"))})), "The Parquet file cannot be read"),
    "Parquet of few bytes, 20 million rows": ("a.parquet", lambda: parquet(pa.table({"a": pa.nulls(20_000_000, pa.int8())})), "The file has more than 10,000,000 rows"),
}  # fmt: skip


def one_text(length: int, rows: int) -> pa.Table:
    """Many rows with the same long text, which is once in the file."""
    zeros = pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(bytes(4 * rows))])
    return pa.table({"a": pa.DictionaryArray.from_arrays(zeros, ["x" * length])})


def long_list(length: int) -> pa.Table:
    """One row, a list of nothing but nulls, which take few bytes in the file."""
    return pa.table({"a": pa.LargeListArray.from_arrays(pa.array([0, length], pa.int64()), pa.nulls(length))})


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_refused_in_one_sentence(tmp_path: Path, case: str) -> None:
    name, content, sentence = REFUSED[case]
    with pytest.raises(Invalid) as caught:
        converted(tmp_path, name, content)
    assert is_one(caught.value.message, sentence)


def is_one(message: str, sentence: str) -> bool:
    return sentence in message and len(message) < 300 and "\n" not in message


def test_a_parquet_file_with_too_many_rows_is_refused_before_any_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    file.write_bytes(parquet(pa.table({"a": pa.nulls(MOST_ROWS + 1, pa.int8())})))
    _, rows = read(file, ".parquet", [])
    with pytest.raises(Invalid, match="The file has more than 10,000,000 rows"):
        next(rows)


def peak(pid: int) -> int:
    """The most bytes of memory that a process had at once."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024


BOMBS: dict[str, tuple[str, bytes | Callable[[], bytes], str]] = {
    "a line of 40 MB": ("a.csv", lambda: b"a,b\n" + b"x" * 40_000_000 + b",1\n", "line 2: is longer than 4 MiB"),
    "a text of 40 MB in JSON": ("a.json", lambda: b'[{"a": "' + b"x" * 40_000_000 + b'"}]', "row 1: is longer than 4 MiB"),
    "JSON nested 100,000 deep": ("a.json", b"[" * 100_000 + b"]" * 100_000, "The file takes more memory or time"),
    "an object nested 100,000 deep": ("a.json", b'[{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}]", "The file takes more memory or time"),
    "a number of a million digits": ("a.json", b'[{"a": ' + b"9" * 1_000_000 + b"}]", "The file takes more memory or time"),
    "Parquet of few bytes, a thousand times a text of 20 MB": ("a.parquet", lambda: parquet(one_text(20_000_000, 1_000), compression="zstd"), "The file takes more memory or time"),
    "Parquet of few bytes, a list of 100 million": ("a.parquet", lambda: parquet(long_list(100_000_000), compression="zstd"), "The file takes more memory or time"),
}  # fmt: skip


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, int, int]]:
    """A real backend that has read one file, its process, and the most memory that it had."""
    site = Site(tmp_path_factory.mktemp("bombs") / "home")
    process = site.backend()
    upload = site.client.upload("a.csv", TEXT.encode("cp1252"))
    assert (upload.format, upload.encoding, upload.separator) == ("csv", "cp1252", "comma")
    yield site, process.pid, peak(process.pid)
    assert process.poll() is None
    site.close()


SLOW = "Parquet of few bytes, a list of 100 million"


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.thorough) if case == SLOW else case for case in BOMBS]
)
def test_a_bomb_is_refused_in_one_sentence_leaves_nothing_and_the_backend_stays_small(
    small: tuple[Site, int, int], case: str
) -> None:
    (site, process, before), (name, content, sentence) = small, BOMBS[case]
    with api_error(422, "invalid") as caught:
        site.client.upload(name, content() if callable(content) else content)
    assert is_one(caught.value.message, sentence)
    assert [path.name for path in (site.home / "uploads").iterdir()] == ["1.jsonl"]
    assert peak(process) - before < 32 * 2**20
    assert site.client.uploads()[0].rows == 2


def test_rows_that_would_fill_the_disk_are_refused(start_backend: Callable[..., Backend]) -> None:
    file = parquet(pa.table({"a": ["the same text"] * 100_000}))
    assert len(file) < 10_000
    backend = start_backend(max_upload_bytes=100_000)
    with pytest.raises(ApiError, match="unpacks to more than 400,000 bytes of rows; upload a part of it"):
        backend.client.upload("a.parquet", file)
    with pytest.raises(ApiError, match="unpacks to more than 400,000 bytes; upload a part of it"):
        backend.client.upload("a.csv.gz", gzip.compress(b"a,b\n" * 200_000))
    assert list((backend.home / "uploads").iterdir()) == []


def test_what_reads_a_file_has_none_of_the_backends_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUPSCOPE_TOKEN", "secret")
    tell = "import json, os; print(json.dumps({'invalid': [{'field': '', 'message': ' '.join(os.environ)}]}))"
    monkeypatch.setattr(conversion, "_MAIN", tell)
    with pytest.raises(Invalid) as caught:
        conversion.convert(tmp_path, ".csv", tmp_path / "rows", most_bytes=1)
    assert "PATH" in caught.value.message.split()
    assert "GROUPSCOPE" not in caught.value.message
