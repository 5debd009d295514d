"""Uploads: rows in, errors that name the line, what is counted, joined, divided and kept, and runs that find what they read."""

import io
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest
from acting import GRPO, Actor, api_error
from processes import wait_until
from serving import Backend, Backends

from backend.contract.client import ApiError, Client, Unreachable
from backend.contract.queries import SplitQuery
from backend.contract.task import Dataset, row_id
from backend.uploads import conversion, store
from worker.tasks.loading import load_items

pytestmark = pytest.mark.usefixtures("read_here")

ROWS = [{"prompt": f"{n} + {n}", "answer": str(2 * n)} for n in range(30)]


def jsonl(rows: list[Any]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def reading(upload_id: int, **task: object) -> dict[str, Any]:
    return {**GRPO, "task": {"kind": "dataset", "source": f"upload:{upload_id}", **task}}


def test_an_upload_comes_back_as_it_was_and_text_without_utf8_is_replaced_in_the_preview(backend: Backend) -> None:
    content = jsonl(ROWS)
    upload = backend.client.upload("my sums.jsonl", content)
    assert (upload.name, upload.rows, upload.columns) == ("my sums.jsonl", 30, ["prompt", "answer"])
    assert backend.client.upload_content(upload.id) == content
    assert upload.size_bytes == len(content)
    assert backend.client.preview_upload(upload.id).rows == ROWS[:20]
    second = backend.client.upload("b", b'\xef\xbb\xbf{"q": 1}\r\n{"q": "x\\ud800y", "\\ud800": null}')
    assert (second.rows, second.columns) == (2, ["q", "\ufffd"])
    assert backend.client.preview_upload(second.id).rows == [{"q": 1}, {"q": "x\ufffdy", "\ufffd": None}]
    assert [one.id for one in backend.client.uploads()] == [second.id, upload.id]
    assert sorted(path.name for path in (backend.home / "uploads").iterdir()) == ["1.jsonl", "2.jsonl"]


def refusal(backend: Backend, config: dict[str, Any]) -> str:
    with pytest.raises(ApiError) as caught:
        backend.client.create_run(config)
    return caught.value.message


def test_a_run_is_refused_if_its_upload_is_not_there_or_lacks_a_column(backend: Backend) -> None:
    assert refusal(backend, reading(1)) == "task.source: there is no upload 1; upload the file first"
    rows: list[dict[str, Any]] = [dict(row) for row in ROWS]
    del rows[2]["answer"]
    empty: list[Any] = [None, "", []]
    for number, value in enumerate(empty, 16):
        rows[number]["answer"] = value
    upload = backend.client.upload("x", jsonl(rows))
    missing = "task.answer_column: column answer is missing in rows 3, 17, 18, 19"
    assert refusal(backend, reading(upload.id)) == missing
    both = "task.answer_column: prompt is the prompt column, too; choose another"
    assert refusal(backend, reading(upload.id, answer_column="prompt")) == both
    lacking = "task.prompt_column: column question is missing in rows 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 20 more"
    assert lacking in refusal(backend, reading(upload.id, prompt_column="question", answer_column="answer"))
    # the prompt in a template is the prompt, whatever a column of this name holds
    template = {"prompt_column": "question", "template": "{prompt}, {answer}"}
    for row in rows:
        row |= {"question": row.pop("prompt"), "answer": "2"}
    rows[3]["prompt"] = "something else"
    again = backend.client.upload("y", jsonl(rows))
    assert backend.client.create_run(reading(again.id, **template)).status == "queued"


def test_a_run_whose_only_prompt_would_be_held_out_is_refused(backend: Backend) -> None:
    one = backend.client.upload("x", jsonl([{"prompt": "1 + 1", "answer": answer} for answer in "23"]))
    for held_out in (0.1, 0.5):
        said = refusal(backend, reading(one.id, held_out=held_out))
        assert said.startswith("task.held_out: holds out the only prompt that the upload has")
    two = backend.client.upload("x", jsonl([{"prompt": f"1 + {n}", "answer": "2"} for n in range(2)]))
    assert backend.client.create_run(reading(two.id, held_out=0.5)).status == "queued"


def test_an_upload_that_a_run_still_needs_cannot_be_deleted(backend: Backend) -> None:
    upload = backend.client.upload("x", jsonl(ROWS))
    run = backend.client.create_run(reading(upload.id))
    with api_error(409, match=f"needed by run {run.id}"):
        backend.client.delete_upload(upload.id)
    Actor(backend.client).begin().finish()
    backend.client.delete_upload(upload.id)
    assert not list((backend.home / "uploads").iterdir())
    with api_error(404):
        backend.client.upload_content(upload.id)


def test_duplicates_and_empty_rows_are_counted(backend: Backend) -> None:
    upload = backend.client.upload("a.csv", b"q,a\n1 + 1,2\n,\n1 + 1,2\n\n2 + 2,4\n1 + 1,2\n")
    assert (upload.rows, upload.duplicates, upload.empty) == (4, 2, 2)
    assert backend.client.upload_content(upload.id).decode().splitlines()[2] == '{"q":"2 + 2","a":"4"}'


def test_what_is_sent_is_told_and_a_key_that_nobody_uses_has_read_nothing(backend: Backend) -> None:
    sent: list[int] = []
    content = jsonl(ROWS) * 5_000
    backend.client.upload("a.jsonl", content, progress="key", on_sent=sent.append)
    assert sent == sorted(sent)
    assert (len(sent), sent[-1]) == (-(-len(content) // 2**20), len(content))
    assert backend.client.upload_progress("key") is None


def test_several_uploads_also_of_an_earlier_version_become_one_whose_rows_say_where_they_are_from(
    backend: Backend,
) -> None:
    parts = [backend.client.upload(name, jsonl(ROWS[:2])) for name in ("easy.jsonl", "hard.jsonl")]
    ids = [part.id for part in parts]
    joined = backend.client.join_uploads("both", ids, source_column="source")
    rows = backend.client.preview_upload(joined.id).rows
    expected = [(name, prompt) for name in ("easy.jsonl", "hard.jsonl") for prompt in ("0 + 0", "1 + 1")]
    assert [(row["source"], row["prompt"]) for row in rows] == expected
    plain = backend.client.join_uploads("both", ids)
    assert (plain.rows, plain.columns, plain.duplicates) == (4, ["prompt", "answer"], 2)
    with pytest.raises(ApiError, match=r"easy\.jsonl has a column answer of its own; choose another name"):
        backend.client.join_uploads("both", ids, source_column="answer")
    # no line end, and an object without a column
    (backend.home / "uploads" / f"{ids[0]}.jsonl").write_bytes(b'{}\r\n  {"prompt": "a"}')
    earlier = backend.client.join_uploads("both", [ids[0], ids[0]], source_column="from")
    assert backend.client.preview_upload(earlier.id).rows == [{"from": "easy.jsonl", "prompt": "a"}] * 2


@pytest.mark.parametrize(
    ("suffix", "content", "rows"),
    [(".txt", b"a, b\nc, d\n", [{"prompt": "a, b"}, {"prompt": "c, d"}]), (".CSV", b'{"a"\n[1]\n', [{'{"a"': "[1]"}])],
)
def test_a_files_own_ending_shows_its_kind_whatever_its_name_is(
    backend: Backend, suffix: str, content: bytes, rows: list[object]
) -> None:
    upload = backend.client.upload("my problems", content, suffix=suffix)
    assert backend.client.preview_upload(upload.id).rows == rows
    named = backend.client.upload_files([(f"mine{suffix}", io.BytesIO(content))], "v1.jsonl")
    assert named.name == "v1.jsonl"
    assert backend.client.preview_upload(named.id).rows == rows
    long = backend.client.upload_files([(f"{'x' * 240}{suffix}", io.BytesIO(content))])
    assert backend.client.preview_upload(long.id).rows == rows


class Torn(io.BytesIO):
    """A file whose reading ends with somebody's Ctrl-C."""

    def read(self, size: int | None = -1, /) -> bytes:
        raise KeyboardInterrupt


TABLE = b"question,answer\n1 + 1,2\n"
WIDE = [f"{','.join(f'{letter}{n}' for n in range(200))}\n1\n".encode() for letter in "ab"]


@pytest.mark.parametrize(
    ("contents", "error", "message"),
    [
        ([io.BytesIO(TABLE), io.BytesIO(b"%PDF-1.7")], ApiError, r"1\.csv: The file is a PDF"),
        ([io.BytesIO(TABLE), Torn()], KeyboardInterrupt, None),
        ([io.BytesIO(one) for one in WIDE], ApiError, "brings the file to 401 columns"),
    ],
    ids=["one is refused", "one is not read to its end", "they cannot be joined"],
)
def test_of_several_files_nothing_stays_if_they_do_not_become_one(
    backend: Backend, contents: list[BinaryIO], error: type[BaseException], message: str | None
) -> None:
    with pytest.raises(error, match=message):
        backend.client.upload_files([(f"{place}.csv", content) for place, content in enumerate(contents)])
    assert backend.client.uploads() == []


def test_several_files_are_one_upload_also_if_their_parts_cannot_be_deleted(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(self: Client, upload_id: int) -> None:
        raise Unreachable("the backend restarts")

    monkeypatch.setattr(Client, "delete_upload", away)
    made = backend.client.upload_files([(name, io.BytesIO(TABLE)) for name in ("a.csv", "b.csv")])
    assert (made.name, made.rows, made.columns) == ("a.csv and 1 more", 2, ["source", "question", "answer"])


def test_uploads_that_are_too_large_together_are_refused_before_any_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Backends(tmp_path / "home") as backends:
        client = backends.start(max_upload_bytes=1_000).client
        upload = client.upload("x", jsonl(ROWS)[:900].rpartition(b"\n")[0])
        monkeypatch.setattr(store, "partial_file", None)
        with pytest.raises(
            ApiError, match=r"the 5 uploads have 4,\d+ bytes in all, and one may have 4,000; join fewer"
        ):
            client.join_uploads("five", [upload.id] * 5)


def test_two_files_are_read_at_once_and_the_others_wait(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    convert, lock, limiter = store.convert, threading.Lock(), backend.services.conversions
    reading, at_once = [0], list[int]()

    def counted(*args: Any, **kwargs: Any) -> conversion.Contents:
        with lock:
            reading[0] += 1
        wait_until(lambda: at_once or limiter.statistics().tasks_waiting == 4 or reading[0] > 2, "four wait for two")
        at_once.append(reading[0])
        try:
            return convert(*args, **kwargs)
        finally:
            with lock:
                reading[0] -= 1

    part = backend.client.upload("x", jsonl(ROWS))
    task = Dataset(source=f"upload:{part.id}", held_out=0.0)
    ids = [row_id(task, row) for row in ROWS[:3]]
    monkeypatch.setattr(store, "convert", counted)
    asked = [
        lambda: backend.client.upload("y", jsonl(ROWS)),
        lambda: backend.client.join_uploads("z", [part.id]),
        lambda: backend.client.keep_rows("band", task.model_dump(mode="json"), ids),
    ] * 2
    with ThreadPoolExecutor(len(asked)) as pool:
        for made in [pool.submit(cast(Any, ask)) for ask in asked]:
            made.result()
    assert max(at_once) == 2


def test_what_a_library_prints_is_not_taken_for_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.csv").write_bytes(TABLE)
    printing = "import os; from backend.uploads import conversion; read = conversion.read\n"
    printing += (
        "conversion.read = lambda *file: (os.write(1, b'a warning of a library\\n'), print('hi'), read(*file))[2]\n"
    )
    beginning, _, main = conversion._MAIN.rpartition("from backend.uploads.conversion")
    monkeypatch.setattr(conversion, "_MAIN", f"{beginning}\n{printing}from backend.uploads.conversion{main}")
    found = conversion.convert(tmp_path / "a.csv", ".csv", tmp_path / "rows", most_bytes=1_000)
    assert (found.rows, found.columns) == (1, ["question", "answer"])


def test_of_many_sources_the_first_by_name_are_counted_as_a_run_logs_them(backend: Backend) -> None:
    long = "x" * 300
    rows = [{"prompt": str(n), "answer": "", "source": f"{30 - n:02}"} for n in range(30)]
    rows = [{**row, "answer": "1"} for row in rows] + [{"prompt": "y", "answer": "1", "source": f"00{long}"}]
    content = jsonl(rows)
    upload = backend.client.upload("x", content)
    query = SplitQuery(prompt_column="prompt", held_out=0.0, source_column="source")
    split = backend.client.split_upload(upload.id, query)
    assert (list(split.sources), split.source_count) == ([f"00{long}"[:200], *(f"{n:02}" for n in range(1, 20))], 31)
    task = Dataset(source=f"upload:{upload.id}", held_out=0.0, source_column="source")
    items = load_items(task, fetch_upload=lambda _: content)
    assert {item.source for item in items.train} - {""} == set(split.sources)
    shared = task.model_copy(update={"shares": {f"00{long}"[:200]: 1.0}})
    assert len(load_items(shared, fetch_upload=lambda _: content).parts[0][0]) == 1


def test_kept_rows_bring_all_that_is_held_out_and_hold_out_the_same(backend: Backend) -> None:
    content = jsonl(ROWS)
    task = Dataset(source=f"upload:{backend.client.upload('x', content).id}", held_out=0.2)
    items = load_items(task, fetch_upload=lambda _: content)
    wanted = [item.id for item in items.train[:7]]
    kept = backend.client.keep_rows("band", task.model_dump(mode="json"), wanted)
    again = load_items(
        task.model_copy(update={"held_out": kept.held_out}),
        fetch_upload=lambda _: backend.client.upload_content(kept.upload.id),
    )
    assert [item.id for item in again.train] == wanted
    assert {item.id for item in again.held_out} == {item.id for item in items.held_out}
    assert {row_id(task, row) for row in ROWS} > set(wanted)


def test_an_upload_that_is_too_large_to_be_counted_says_so(backend: Backend) -> None:
    upload = backend.client.upload("x", jsonl([{"prompt": "x" * 1_000_000, "answer": str(n)} for n in range(34)]))
    with api_error(409, match="larger than 32 MiB; a run counts its rows when it begins"):
        backend.client.split_upload(upload.id, SplitQuery(prompt_column="prompt", held_out=0.1))


def test_the_split_that_is_shown_is_the_split_of_a_run(backend: Backend) -> None:
    rows = [{"prompt": f"{n % 40} + 1", "answer": str(n), "source": ("a", "b", "b")[n % 3]} for n in range(100)]
    content = jsonl(rows)
    upload = backend.client.upload("x", content)
    query = SplitQuery(prompt_column="prompt", held_out=0.25, source_column="source")
    split = backend.client.split_upload(upload.id, query)
    task = Dataset(source=f"upload:{upload.id}", held_out=0.25, source_column="source")
    items = load_items(task, fetch_upload=lambda _: content)
    assert (split.train, split.held_out) == (len(items.train), len(items.held_out))
    for name, part in split.sources.items():
        assert part.train == sum(item.source == name for item in items.train)
        assert part.held_out == sum(item.source == name for item in items.held_out)
    assert list(split.sources) == ["a", "b"]
