"""Judged pairs as a preference data set: what training reads from it is what the policy read and wrote."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from acting import GRPO, Actor, api_error, completion
from serving import Backend

from backend.contract.client import ApiError
from backend.contract.groups import Group, GroupReport, GroupState
from backend.contract.grpo import GrpoConfig
from backend.contract.preference import DatasetPairs
from backend.contract.task import Dataset
from worker.preferences.pairs import Pair, load_pairs
from worker.tasks.items import Item
from worker.tasks.loading import load_items

HOSTILE = "<img src=x onerror=alert(1)> # h ![x](http://evil.example) \x1b[31m \u202e abc\x07\r\n\u2028{prompt} end"
TEXTS = (f"right {HOSTILE}", f"wrong {HOSTILE}")
SUM = Item("a", "2 + 2", ({"role": "user", "content": "2 + 2"},), "4", {})
RAW = {**GRPO, "task": {"kind": "arithmetic", "prompt_format": "raw"}}


def rendered(item: Item) -> str:
    """As some tokenizer's template might."""
    turns = "".join(f"<{turn['role']}>{turn['content']}" for turn in item.messages or ())
    return f"{turns}<assistant>" if turns else item.question


def reported(index: int, item: Item, texts: Sequence[str] = TEXTS, state: GroupState = "live") -> GroupReport:
    """The group that a worker reports of an item."""
    return GroupReport(
        index=index,
        prompt_id=item.id,
        prompt_text=rendered(item),
        prompt=item.question,
        answer=item.answer,
        state=state,
        scored=2,
        completions=[completion(place, text, 1.0 - place) for place, text in enumerate(texts)],
    )


def judge(backend: Backend, config: dict[str, Any], groups: Sequence[GroupReport]) -> tuple[int, list[Group]]:
    """A run of this configuration whose groups were judged: the first completion of each is better."""
    run_id = backend.client.create_run(config).id
    Actor(backend.client).begin().report(0, groups=groups)
    found = [backend.client.group(one.id) for one in backend.client.groups(run_id, sort="index").items]
    for group in found:
        better, worse = group.completions[:2]
        backend.client.people.choose(group.id, better=better.id, worse=worse.id)
    return run_id, found


def rows_of(backend: Backend, run_id: int) -> list[dict[str, Any]]:
    content = b"".join(backend.client.people.preferences(run_id)).decode()
    return [json.loads(line) for line in content.split("\n") if line]


def trained_on(backend: Backend, run_id: int, **fields: object) -> list[Pair]:
    """The pairs as a worker reads them from the kept upload."""
    upload = backend.client.people.keep_preferences(run_id)
    config = DatasetPairs.model_validate({"source": f"upload:{upload.id}", "held_out": 0, **fields})
    return list(load_pairs(config, fetch_upload=backend.client.upload_content).train)


def jsonl(rows: Sequence[object]) -> bytes:
    return "\n".join(json.dumps(row) for row in rows).encode()


TASKS: dict[str, dict[str, Any]] = {
    "arithmetic": {"kind": "arithmetic"},
    "a system prompt": {"kind": "arithmetic", "system_prompt": f"Be careful. {HOSTILE}"},
    "countdown": {"kind": "countdown"},
    "texts of a data set": {"kind": "dataset", "source": "upload:1", "template": "Q: {prompt}\nA:", "held_out": 0},
}


@pytest.mark.parametrize("name", TASKS)
def test_training_reads_the_chat_that_the_policy_read(backend: Backend, name: str) -> None:
    rows = [{"prompt": f"{n} + {n}? {HOSTILE}", "answer": str(2 * n)} for n in range(3)]
    backend.client.upload("rows", jsonl(rows))
    budget: Any = GRPO["budget"]
    config = {**GRPO, "task": TASKS[name], "budget": {**budget, "eval_every": 0}}
    task = GrpoConfig.model_validate(config).task
    items = load_items(task, fetch_upload=backend.client.upload_content).train[:3]
    run_id, groups = judge(backend, config, [reported(index, item) for index, item in enumerate(items)])
    pairs = {pair.question: pair for pair in trained_on(backend, run_id)}
    assert [pairs[item.question].messages for item in items] == [item.messages for item in items]
    assert {(pair.chosen.text, pair.rejected.text) for pair in pairs.values()} == {TEXTS}
    assert [row["group"] for row in rows_of(backend, run_id)] == sorted((one.id for one in groups), reverse=True)


def test_a_raw_prompt_is_trained_on_raw(backend: Backend) -> None:
    item = Item("a", f"2 + 2 = {HOSTILE}", None, "4", {})
    run_id, _ = judge(backend, RAW, [reported(0, item)])
    [pair] = trained_on(backend, run_id, prompt_format="raw")
    assert (pair.question, pair.messages) == (item.question, None)
    assert (pair.chosen.text, pair.rejected.text) == TEXTS


def test_a_conversation_of_a_data_set_comes_as_the_text_that_the_model_read(backend: Backend) -> None:
    chat = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "yes?"},
        {"role": "user", "content": "2 + 2"},
    ]
    rows = [{"prompt": chat, "answer": "4"}, {"prompt": "3 + 3", "answer": "6"}]
    backend.client.upload("rows", jsonl(rows))
    config = {**GRPO, "task": {"kind": "dataset", "source": "upload:1", "held_out": 0.5}}
    items = load_items(Dataset.model_validate(config["task"]), fetch_upload=backend.client.upload_content)
    both = [*items.train, *items.held_out]
    run_id, _ = judge(backend, config, [reported(index, item) for index, item in enumerate(both)])
    pairs = trained_on(backend, run_id, prompt_format="raw")
    assert {pair.question for pair in pairs} == {rendered(item) for item in both}
    assert all(pair.messages is None for pair in pairs)


def test_a_row_says_where_it_comes_from(backend: Backend) -> None:
    run_id, [group] = judge(backend, GRPO, [reported(0, SUM)])
    [row] = rows_of(backend, run_id)
    assert row == {
        "prompt": [{"role": "user", "content": "2 + 2"}],
        "chosen": [{"role": "assistant", "content": TEXTS[0]}],
        "rejected": [{"role": "assistant", "content": TEXTS[1]}],
        "run": run_id,
        "step": 0,
        "group": group.id,
        "chosen_index": 0,
        "rejected_index": 1,
        "chosen_reward": 1.0,
        "rejected_reward": 0.0,
        "how": "choice",
    }
    backend.client.people.remove_choice(backend.client.people.choices(group.id)[0].id)
    backend.client.people.thumb(group.completions[1].id, "up")
    backend.client.people.thumb(group.completions[0].id, "down")
    [row] = rows_of(backend, run_id)
    assert (row["how"], row["chosen_index"], row["chosen_reward"]) == ("thumbs", 1, 0.0)


def test_an_empty_completion_can_be_trained_on_in_a_chat_and_is_left_out_of_texts(backend: Backend) -> None:
    run_id, _ = judge(backend, GRPO, [reported(0, SUM, ("four", ""))])
    [pair] = trained_on(backend, run_id)
    assert (pair.chosen.text, pair.rejected.text) == ("four", "")
    raw_item = Item("a", "2 + 2", None, "4", {})
    run_id, _ = judge(backend, RAW, [reported(0, raw_item, ("four", "")), reported(1, raw_item)])
    assert len(rows_of(backend, run_id)) == 1
    found = backend.client.people.agreement(run_id)
    assert (found.pairs, found.trainable) == (2, 1)
    run_id, _ = judge(backend, RAW, [reported(0, raw_item, ("four", ""))])
    with pytest.raises(ApiError, match="each is of a probe or has an empty completion"):
        backend.client.people.keep_preferences(run_id)


def test_pairs_of_probes_are_left_out_and_where_nobody_judged_there_are_none_to_keep(backend: Backend) -> None:
    run_id, _ = judge(backend, GRPO, [reported(0, SUM, state="probe")])
    found = backend.client.people.agreement(run_id)
    assert (found.pairs, found.trainable) == (1, 0)
    assert rows_of(backend, run_id) == []
    with api_error(409, match=rf"All judged pairs of run {run_id} \(1\) are of probes"):
        backend.client.people.keep_preferences(run_id)
    with api_error(409, match="no judged pairs in run"):
        backend.client.people.keep_preferences(backend.client.create_run(GRPO).id)


def test_the_same_pairs_are_kept_once_and_others_anew(backend: Backend) -> None:
    run_id, [group] = judge(backend, GRPO, [reported(0, SUM, ("four", "five", "six"))])
    people = backend.client.people
    first = people.keep_preferences(run_id)
    assert people.keep_preferences(run_id) == first
    people.choose(group.id, better=group.completions[0].id, worse=group.completions[2].id)
    second = people.keep_preferences(run_id)
    assert (first.rows, second.rows) == (1, 2)
    assert backend.client.upload_content(second.id) == b"".join(people.preferences(run_id))
    backend.client.delete_upload(second.id)
    third = people.keep_preferences(run_id)
    assert third.id not in (first.id, second.id)
    assert not list((backend.home / "uploads").glob("*.partial"))
