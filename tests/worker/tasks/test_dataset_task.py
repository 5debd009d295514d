"""A person's own data: uploads and data sets of the Hub, and what is said where they cannot be used."""

import datetime
import json
from collections.abc import Sequence

import datasets
import pytest

from backend.contract.client import ApiError
from backend.contract.task import Dataset
from worker.tasks.items import Items, TaskError
from worker.tasks.loading import load_items
from worker.tasks.rows import read_hub

ROWS = [{"prompt": f"What is {n} + {n}?", "answer": str(2 * n), "level": n} for n in range(40)]


def upload(rows: Sequence[object]) -> bytes:
    return "\n".join(json.dumps(row) for row in rows).encode()


def load(content: bytes, **fields: object) -> Items:
    return load_items(
        Dataset.model_validate({"source": "upload:7", **fields}), fetch_upload=lambda number: {7: content}[number]
    )


def refused(content: bytes, **fields: object) -> TaskError:
    with pytest.raises(TaskError) as caught:
        load(content, **fields)
    return caught.value


# ---- uploads


def test_the_rows_of_an_upload_become_items() -> None:
    items = load(upload(ROWS), template="Q: {prompt}\nA:", system_prompt="Add.")
    both = {item.question: item for item in (*items.train, *items.held_out)}
    assert len(both) == 40
    item = both["Q: What is 7 + 7?\nA:"]
    assert item.messages == (
        {"role": "system", "content": "Add."},
        {"role": "user", "content": "Q: What is 7 + 7?\nA:"},
    )
    assert (item.answer, item.verifier) == ("14", {"kind": "exact"})
    assert item.columns == {"prompt": "What is 7 + 7?", "answer": "14", "level": 7}


@pytest.mark.parametrize(
    ("rows", "held_out", "sizes"),
    [(ROWS, 0.25, (30, 10)), (ROWS[:3], 0.1, (2, 1)), (ROWS, 0, (40, 0))],
    ids=["a quarter", "at least one of few", "none where none is asked for"],
)
def test_as_many_are_held_out_as_are_asked_for_and_always_the_same_items(
    rows: Sequence[object], held_out: float, sizes: tuple[int, int]
) -> None:
    items, shuffled = load(upload(rows), held_out=held_out), load(upload(rows[::-1]), held_out=held_out)
    assert (len(items.train), len(items.held_out)) == sizes
    assert items.held_out == shuffled.held_out


def test_rows_with_one_prompt_are_on_one_side() -> None:
    rows = [{"prompt": f"p{n % 5}", "answer": str(n)} for n in range(50)]
    items = load(upload(rows), held_out=0.4)
    assert {item.question for item in items.train}.isdisjoint(item.question for item in items.held_out)
    assert len(items.held_out) == 20


def test_an_id_is_of_the_prompt_and_its_answer_whatever_the_wording() -> None:
    assert len(ids(ROWS)) == 40
    assert ids(ROWS, template="{prompt}!", held_out=0) == ids(ROWS)
    assert ids([{**row, "answer": "other"} for row in ROWS]).isdisjoint(ids(ROWS))


def ids(rows: Sequence[object], **fields: object) -> set[str]:
    items = load(upload(rows), **fields)
    return {item.id for item in (*items.train, *items.held_out)}


def test_answers_that_are_no_text_are_written_out_and_there_may_be_none() -> None:
    rows = [{"prompt": f"p{n}", "answer": answer} for n, answer in enumerate([14, 1.5, True, ["a"], 0])]
    items = load(upload(rows), held_out=0)
    assert [item.answer for item in items.train] == ["14", "1.5", "true", '["a"]', "0"]
    items = load(upload([{"prompt": "a"}, {"prompt": "b"}]), answer_column=None, held_out=0)
    assert [item.answer for item in items.train] == [None, None]


def test_byte_order_marks_empty_lines_windows_lines_and_text_that_cannot_be_encoded_are_no_obstacle() -> None:
    content = b"\xef\xbb\xbf" + b'{"prompt": "a\\u2028", "answer": "1"}\r\n\r\n{"prompt": "b", "answer": "2"}\r\n\n'
    assert [item.question for item in load(content, held_out=0).train] == ["a\u2028", "b"]
    items = load(b'{"prompt": "a\\ud800\\u0000", "answer": "\\udc00"}\n{"prompt": "b", "answer": "2"}', held_out=0)
    assert (items.train[0].question, items.train[0].answer) == ("a\ufffd\ufffd", "\ufffd")


@pytest.mark.parametrize(
    ("content", "code", "says"),
    [
        (b"", "too_few_items", "the data set upload:7 has no rows"),
        (b"\xff\xfe", "dataset_unreadable", "the uploaded file is not UTF-8 text (byte 0)"),
        (b'{"prompt": "a", "answer": "1"}\nnope', "dataset_unreadable", "has no JSON in line 2"),
        (b'[{"prompt": "a", "answer": "1"}]', "dataset_unreadable", "has a list in line 1; each line must hold"),
        (b"[" * 100_000, "dataset_unreadable", "has no JSON in line 1"),
        (b'{"prompt": ' + b"9" * 10_000 + b"}", "dataset_unreadable", "has no JSON in line 1"),
        (b'{"prompt": "a", "answer": "1"}', "too_few_items", "gives 0 items to train on and 1 for evaluation"),
    ],
)
def test_an_unreadable_upload_says_where(content: bytes, code: str, says: str) -> None:
    error = refused(content)
    assert error.code == code
    assert says in error.message


def test_missing_answers_are_named_by_row_and_a_column_that_is_nowhere_with_those_that_are() -> None:
    empty = [{**row, "answer": ""} if n in (2, 16) else row for n, row in enumerate(ROWS)]
    assert refused(upload(empty)).message == "column answer is missing in rows 3, 17"
    absent = [{"prompt": row["prompt"]} if n > 30 else row for n, row in enumerate(ROWS)]
    assert refused(upload(absent)).message == "column answer is missing in rows 32, 33, 34, 35, 36 and 4 more"
    assert refused(upload([*ROWS, {"answer": "a"}])).message == "column prompt is missing in row 41"
    error = refused(upload(ROWS), prompt_column="question")
    assert error.code == "dataset_columns"
    assert error.message == "the data set has no column question; its columns are prompt, answer, level"


def test_an_upload_that_was_deleted_says_so() -> None:
    def gone(_: int) -> bytes:
        raise ApiError(404, "not_found", "there is no upload 7")

    with pytest.raises(TaskError, match="the uploaded file 7 is gone; upload it again"):
        load_items(Dataset(source="upload:7"), fetch_upload=gone)


# ---- prompts that are chats


def conversation(*turns: tuple[str, object]) -> bytes:
    return upload([{"prompt": [{"role": role, "content": content} for role, content in turns], "answer": "1"}])


def test_a_prompt_may_be_a_chat_and_keeps_its_own_system_message() -> None:
    turns = [("user", "Hi"), ("assistant", "Hello"), ("user", "1 + 1?")]
    asked = {"held_out": 0, "system_prompt": "Add.", "template": "{prompt} Be brief."}
    [item] = load(conversation(*turns), **asked).train
    ends = [("user", "Hi"), ("assistant", "Hello"), ("user", "1 + 1? Be brief.")]
    assert [(one["role"], one["content"]) for one in item.messages or ()] == [("system", "Add."), *ends]
    assert item.question == "1 + 1? Be brief."
    [item] = load(conversation(("system", "Own."), *turns), **asked).train
    assert [(one["role"], one["content"]) for one in item.messages or ()] == [("system", "Own."), *ends]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (conversation(("user", "Hi"), ("assistant", "Hello")), "the chat of row 1 ends with assistant"),
        (conversation(("robot", "Hi")), "row 1 has a message that is not a text by system, user, assistant"),
        (conversation(("user", ["Hi"])), "row 1 has a message that is not a text"),
        (upload([{"prompt": ["Hi"], "answer": "1"}]), "row 1 has a message that is not a text"),
        (conversation(("user", "Hi")), "the prompt of row 1 is a chat; choose the prompt format chat"),
    ],
)
def test_a_chat_that_cannot_be_asked_says_why(content: bytes, says: str) -> None:
    prompt_format = "raw" if "format" in says else "chat"
    assert says in refused(content, held_out=0, prompt_format=prompt_format).message


# ---- the Hub


def test_a_data_set_of_the_hub_becomes_items(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    def load_dataset(path: str, name: str | None, *, split: str) -> datasets.Dataset:
        asked.append((path, name, split))
        return datasets.Dataset.from_list([{**row, "day": datetime.date(2024, 1, 31)} for row in ROWS])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    items = load(b"", source="hub:openai/gsm8k", subset="main", split="test")
    assert asked == [("hf://datasets/openai/gsm8k", "main", "test")]
    assert (len(items.train), len(items.held_out)) == (36, 4)
    assert items.train[0].columns["day"] == "2024-01-31"
    assert {item.id for item in items.train} == {item.id for item in load(upload(ROWS)).train}


def test_a_hub_that_cannot_be_reached_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    error = refused(b"", source="hub:nobody/nothing-that-is-cached")
    assert error.code == "dataset_unreachable"
    assert error.message.startswith("the data set nobody/nothing-that-is-cached cannot be fetched: ")
    assert error.message.endswith("Give the worker network access, or upload the rows as JSONL")


@pytest.mark.parametrize("name", ["json", "a/../../etc", "a/..", "a/b/c", "worker", "a/b/../../tests"])
def test_only_a_repository_is_asked_for_never_a_file_of_the_workers(name: str) -> None:
    with pytest.raises(TaskError, match="write owner/name", check=lambda one: one.code == "dataset_unknown"):
        read_hub(name, None, "train")  # a second fence: the contract refuses such a name before
