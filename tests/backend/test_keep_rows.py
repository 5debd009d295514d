"""A band of a measured data set: an upload of the rows that were kept, which holds out the same prompts as before."""

import json
from typing import Any

import pytest
from serving import Backend

from backend.contract.client import ApiError
from backend.contract.task import Dataset
from worker.tasks.items import Items
from worker.tasks.rows import load_dataset

pytestmark = pytest.mark.usefixtures("read_here")

ROWS: list[dict[str, Any]] = [{"prompt": f"{n} + {n}", "answer": str(2 * n), "level": n % 3} for n in range(50)]


def uploaded(backend: Backend, rows: list[dict[str, Any]] = ROWS, **task: object) -> Dataset:
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    upload = backend.client.upload("sums.jsonl", content)
    return Dataset.model_validate({"source": f"upload:{upload.id}", "held_out": 0.2, **task})


def items(backend: Backend, task: Dataset) -> Items:
    return load_dataset(task, fetch_upload=backend.client.upload_content)


def kept(backend: Backend, task: Dataset, ids: list[str]) -> Dataset:
    """The task on the rows that were kept, as the form has it after the click."""
    made = backend.client.keep_rows("band", task.model_dump(mode="json"), ids)
    return task.model_copy(update={"source": f"upload:{made.upload.id}", "held_out": made.held_out})


def ids(found: Items) -> tuple[list[str], list[str]]:
    return sorted(item.id for item in found.train), sorted(item.id for item in found.held_out)


def test_a_band_and_a_band_of_it_train_on_what_was_kept_and_hold_out_what_was_held_out(shared_backend: Backend) -> None:
    task = uploaded(shared_backend)
    before = items(shared_backend, task)
    train, held_out = [item.id for item in before.train], ids(before)[1]
    half = kept(shared_backend, task, train[:30])
    assert ids(items(shared_backend, half)) == (sorted(train[:30]), held_out)
    quarter = kept(shared_backend, half, train[10:25])
    assert ids(items(shared_backend, quarter)) == (sorted(train[10:25]), held_out)
    few = ids(items(shared_backend, kept(shared_backend, task, train[:3])))
    assert (few[0], len(few[1])) == (sorted(train[:3]), 3), "some are left away rather than trained on"
    assert set(few[1]) < set(held_out)


def test_nothing_is_held_out_of_a_band_if_nothing_was_before(shared_backend: Backend) -> None:
    task = uploaded(shared_backend, held_out=0.0)
    chosen = [item.id for item in items(shared_backend, task).train[:5]]
    again = kept(shared_backend, task, chosen)
    assert again.held_out == 0
    assert ids(items(shared_backend, again)) == (sorted(chosen), [])


def test_rows_are_kept_whole_and_of_a_prompt_with_two_answers_the_one_that_was_measured(
    shared_backend: Backend,
) -> None:
    rows = [*ROWS, {"prompt": "2 + 2", "answer": "four", "level": 9}]
    task = uploaded(shared_backend, rows, held_out=0.0, template="{prompt} at level {level}")
    [item] = [one for one in items(shared_backend, task).train if one.columns["level"] == 9]
    again = items(shared_backend, kept(shared_backend, task, [item.id]))
    assert [one.columns for one in again.train] == [rows[-1]]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("upload:{id}", "has one of these ids; measure it again"),
        ("hub:openai/gsm8k", "rows are kept of an upload"),
        ("upload:999999", "There is no upload 999999"),
    ],
)
def test_what_cannot_be_kept_is_refused_and_leaves_nothing(shared_backend: Backend, source: str, message: str) -> None:
    task = uploaded(shared_backend)
    before = len(shared_backend.client.uploads())
    asked = task.model_dump(mode="json") | {"source": source.format(id=task.source.partition(":")[2])}
    with pytest.raises(ApiError, match=message):
        shared_backend.client.keep_rows("band", asked, ["dataset:0"])
    assert len(shared_backend.client.uploads()) == before
    assert not list((shared_backend.home / "uploads").glob("*.partial"))
