"""Uploads: JSON lines in, errors that name the line, and runs that find what they read."""

import json
from typing import Any

import pytest
from acting import GRPO, Actor
from serving import Backend

from backend.contract.client import ApiError

ROWS = [{"prompt": f"{n} + {n}", "answer": str(2 * n)} for n in range(30)]


def jsonl(rows: list[Any]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def reading(upload_id: int, **task: object) -> dict[str, Any]:
    return {**GRPO, "task": {"kind": "dataset", "source": f"upload:{upload_id}", **task}}


def test_an_upload_comes_back_as_it_was(backend: Backend) -> None:
    content = jsonl(ROWS)
    upload = backend.client.upload("my sums.jsonl", content)
    assert (upload.name, upload.rows, upload.columns) == ("my sums.jsonl", 30, ["prompt", "answer"])
    assert backend.client.upload_content(upload.id) == content
    assert upload.size_bytes == len(content)
    preview = backend.client.preview_upload(upload.id)
    assert preview.rows == ROWS[:20]
    second = backend.client.upload("b", b'\xef\xbb\xbf{"q": 1}\r\n{"q": 2, "z": null}')
    assert (second.rows, second.columns) == (2, ["q", "z"])
    assert [one.id for one in backend.client.uploads()] == [second.id, upload.id]
    assert sorted(path.name for path in (backend.home / "uploads").iterdir()) == ["1.jsonl", "2.jsonl"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "The file is empty"),
        (b"\n\n", "The file is empty"),
        (b'{"a": 1}\n{"a": \n', "line 2: is not valid JSON: Expecting value at column"),
        (b'{"a": 1}\n[1]\n', "line 2: is an array, not an object"),
        (b'"x"\n', "line 1: is a string, not an object"),
        (b'{"a": 1}\n\n{"a": 2}\n', "line 2: is empty; remove it"),
        (b'{"a": "\xff"}\n', "line 1: is not UTF-8 (byte 8)"),
        (b'{"a": NaN}\n', "line 1: has a number that cannot be read: NaN"),
        (b'{"a": ' + b"9" * 5000 + b"}\n", "line 1: has a number that cannot be read"),
        (b'{"a": ' + b"[" * 100_000 + b"\n", "line 1: is nested too deeply"),
    ],
)
def test_a_file_that_is_no_jsonl_is_refused_by_line_and_leaves_nothing(
    shared_backend: Backend, content: bytes, message: str
) -> None:
    with pytest.raises(ApiError) as caught:
        shared_backend.client.upload("x", content)
    assert caught.value.status == 422
    assert message in caught.value.message
    assert list((shared_backend.home / "uploads").iterdir()) == []


def test_text_that_has_no_utf8_is_replaced_in_the_preview(backend: Backend) -> None:
    upload = backend.client.upload("x", b'{"a": "x\\ud800y", "\\ud800": 1}')
    assert backend.client.preview_upload(upload.id).rows == [{"a": "x\ufffdy", "\ufffd": 1}]


def test_a_run_is_refused_if_its_upload_is_not_there_or_lacks_a_column(backend: Backend) -> None:
    with pytest.raises(ApiError) as caught:
        backend.client.create_run(reading(1))
    assert caught.value.message == "task.source: there is no upload 1; upload the file first"
    rows = [dict(row) for row in ROWS]
    del rows[2]["answer"]
    rows[16]["answer"] = None  # type: ignore[assignment]
    upload = backend.client.upload("x", jsonl(rows))
    with pytest.raises(ApiError) as caught:
        backend.client.create_run(reading(upload.id))
    assert caught.value.message == "task.answer_column: column answer is missing in rows 3, 17"
    with pytest.raises(ApiError) as caught:
        backend.client.create_run(reading(upload.id, prompt_column="question", answer_column="answer"))
    details: Any = caught.value.details
    assert details[0]["message"] == "column question is missing in rows 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 20 more"
    assert backend.client.create_run(reading(upload.id, answer_column="prompt")).status == "queued"


def test_an_upload_that_a_run_still_needs_cannot_be_deleted(backend: Backend) -> None:
    upload = backend.client.upload("x", jsonl(ROWS))
    run = backend.client.create_run(reading(upload.id))
    with pytest.raises(ApiError, match=f"needed by run {run.id}") as caught:
        backend.client.delete_upload(upload.id)
    assert caught.value.status == 409
    Actor(backend.client).begin().finish()
    backend.client.delete_upload(upload.id)
    assert not list((backend.home / "uploads").iterdir())
    with pytest.raises(ApiError) as caught:
        backend.client.upload_content(upload.id)
    assert caught.value.status == 404
