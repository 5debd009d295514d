"""What people bring: rows in the layouts of public data sets, read as a person would read them, or refused with the way on."""

import json
from pathlib import Path
from typing import Any

import pytest
from acting import GRPO
from serving import Backend, one_for_all

from backend.contract.cells import Cells
from backend.contract.client import ApiError
from backend.contract.preference import DatasetPairs, DpoConfig
from backend.contract.survey import Survey, SurveyQuery
from backend.contract.task import Dataset
from backend.uploads import survey as looked
from worker.preferences.pairs import load_pairs
from worker.tasks.loading import load_items

pytestmark = pytest.mark.usefixtures("read_here")

HH = "\n\nHuman: What is {n} + {n}?\n\nAssistant: Tell me more.\n\nHuman: Only the sum.\n\nAssistant: {a}"
SOLUTION = "Each has {n}, two have {n} + {n} = <<{n}+{n}={a}>>{a}.\n#### {a}"
ASKED = "How many are {n} and {n}?"
CHAT = '[{{"role": "user", "content": "How many are {n} and {n}?"}}, {{"role": "assistant", "content": "{a}"}}]'

backend = pytest.fixture(one_for_all)  # each test has uploads of its own


def said(role: str, text: str, names: tuple[str, str] = ("role", "content")) -> dict[str, Any]:
    return {names[0]: role, names[1]: text}


DPO = DpoConfig().model_dump(mode="json")
SHAREGPT = ("from", "value")
TASKS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "GSM8K": ({"question": ASKED, "answer": SOLUTION}, {"prompt_column": "question", "answer_column": "answer"}, "as the number {a}"),
    "MATH": (
        {"problem": ASKED, "level": "Level 1", "type": "Algebra", "solution": "So it is $\\boxed{{{a}}}$."},
        {"prompt_column": "problem", "answer_column": "solution"},
        "as the number {a}",
    ),
    "verl": (
        {
            "data_source": "sums",
            "prompt": [said("user", ASKED)],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": "{a}"},
            "extra_info": {"index": "{n}"},
        },
        {"prompt_column": "prompt", "answer_column": "reward_model.ground_truth"},
        "as the number {a}",
    ),
    "ShareGPT": (
        {"id": "chat_{n}", "conversations": [said("human", ASKED, SHAREGPT), said("gpt", "{a}", SHAREGPT)]},
        {"prompt_column": "conversations.chat", "answer_column": "conversations.answer"},
        "as the number {a}",
    ),
    "OpenAI with parts": (
        {"messages": [said("developer", "Be brief."), {"role": "user", "content": [{"type": "text", "text": ASKED}]}, said("assistant", "{a}")]},
        {"prompt_column": "messages.chat", "answer_column": "messages.answer"},
        "as the number {a}",
    ),
    "a chat as JSON": ({"n": "{n}", "messages": CHAT}, {"prompt_column": "messages.chat", "answer_column": "messages.answer"}, "as the number {a}"),
    "a chat as Python": (
        {"messages": CHAT.replace('"', "'"), "label": "{a}"},
        {"prompt_column": "messages.chat", "answer_column": "label"},
        "as the number {a}",
    ),
    "German, numbered": ({"Nr": "{n}", "Frage": ASKED, "Antwort": "{a}"}, {"prompt_column": "Frage", "answer_column": "Antwort"}, "as the number {a}"),
    "Chinese": ({"编号": "{n}", "问题": ASKED, "答案": "{a}"}, {"prompt_column": "问题", "answer_column": "答案"}, "as the number {a}"),
    "ids": ({"id": "{n}", "text": ASKED, "label": "{a}"}, {"prompt_column": "text", "answer_column": "label"}, "as the number {a}"),
    "SQuAD": (
        {"id": "5733be{n}", "context": "A passage about {n}.", "question": ASKED, "answers": {"text": ["{a}", "all {a}"], "answer_start": [0]}},
        {"prompt_column": "context + question", "answer_column": "answers.text"},
        "any of {a}, all {a}",
    ),
    "Alpaca": (
        {"instruction": "Add, {n}.", "input": "Twice {n}.", "output": "word " * 30 + "{a}"},
        {"prompt_column": "instruction + input", "answer_column": "output"},
        "as the text " + "word " * 30 + "{a}",
    ),
    "MMLU": (
        {"question": ASKED, "subject": "sums", "choices": ["0", "1", "{a}", "3"], "answer": 2},
        {"prompt_column": "question + choices.lettered", "answer_column": "answer.letter"},
        "as the text C",
    ),
    "ARC": (
        {"id": "Q{n}", "question": ASKED, "choices": {"text": ["0", "{a}"], "label": ["A", "B"]}, "answerKey": "B"},
        {"prompt_column": "question + choices.lettered", "answer_column": "answerKey"},
        "as the text B",
    ),
    "a struct as JSON": (
        {"prompt": ASKED, "reward_model": '{{"ground_truth": "{a}"}}'},
        {"prompt_column": "prompt", "answer_column": "reward_model.ground_truth"},
        "as the number {a}",
    ),
}  # fmt: skip


def filled(value: Any, n: int) -> Any:
    """The layout with the numbers of row `n`; whole numbers as such."""
    if isinstance(value, dict):
        return {name: filled(one, n) for name, one in value.items()}
    if isinstance(value, list):
        return [filled(one, n) for one in value]
    text = value.format(n=n, a=2 * n) if isinstance(value, str) else value
    return int(text) if value in ("{n}", "{a}") else text


def upload(backend: Backend, layout: dict[str, Any], count: int = 40) -> int:
    rows = [filled(layout, n) for n in range(3, 3 + count)]
    return backend.client.upload("x.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode()).id


def survey(backend: Backend, upload_id: int, **asked: Any) -> Survey:
    return backend.client.survey_upload(upload_id, SurveyQuery(**asked))


@pytest.mark.parametrize("name", TASKS)
def test_a_layout_is_read_as_a_person_reads_it_and_trained_so(backend: Backend, name: str) -> None:
    layout, columns, how = TASKS[name]
    number = upload(backend, layout)
    found = survey(backend, number)
    assert {key: value for key, value in found.fields.items() if key in columns} == columns
    assert (found.question, found.problem) == (None, None)
    assert [one.compared for one in found.examples] == [how.format(a=2 * n) for n in (3, 4, 5)]
    assert ("warm start" in " ".join(found.remarks)) == (name == "Alpaca")
    run = backend.client.create_run(
        {**GRPO, "task": {"kind": "dataset", "source": f"upload:{number}", "held_out": 0.1}}
    )
    task = Dataset.model_validate(run.config["task"])
    assert {key: getattr(task, key) for key in columns} == columns, (
        "what is submitted without columns is stored with them"
    )
    items = load_items(task, fetch_upload=lambda _: backend.client.upload_content(number)).train
    assert {item.question for item in items} < {one for n in range(3, 43) for one in [_question(layout, n)]}
    assert all(item.answer and (item.messages or ({},))[-1].get("content") == item.question for item in items)


def _question(layout: dict[str, Any], n: int) -> str:
    row = filled(layout, n)
    if "choices" in row:
        texts = row["choices"]["text"] if isinstance(row["choices"], dict) else row["choices"]
        return "\n\n".join(
            [row["question"], "\n".join(f"{letter}. {text}" for letter, text in zip("ABCD", texts, strict=False))]
        )
    if "context" in row:
        return f"{row['context']}\n\n{row['question']}"
    return f"{row['instruction']}\n\n{row['input']}" if "instruction" in row else ASKED.format(n=n)


def test_rows_of_countdown_are_checked_by_their_expression(backend: Backend) -> None:
    number = upload(backend, {"target": "{a}", "nums": ["{n}", "{n}", 1]})
    task = Dataset.model_validate({**survey(backend, number).fields, "source": f"upload:{number}"})
    item = load_items(task, fetch_upload=lambda _: backend.client.upload_content(number)).train[0]
    n = item.verifier["numbers"][0]  # type: ignore[index]
    assert item.verifier == {"kind": "countdown", "numbers": [n, n, 1], "target": 2 * n}
    assert f"[{n}, {n}, 1]" in item.question
    assert f"equals {2 * n}" in item.question
    exact = {"functions": [{"kind": "correctness", "name": "right", "match": "exact"}]}
    with pytest.raises(ApiError, match="an answer to Countdown is an expression; set it to task"):
        backend.client.create_run({**GRPO, "task": task.model_dump(), "rewards": exact})


ANSWERED = [said("assistant", "{a} ")]
PAIRS: dict[str, tuple[dict[str, Any], bool]] = {  # whether the turns before are part of the prompt
    "HH": ({"chosen": HH, "rejected": HH.replace("{a}", "I do not know")}, True),
    "UltraFeedback": (
        {
            "prompt": ASKED, "prompt_id": "c{n}f",
            "chosen": [said("user", ASKED), said("assistant", "{a} ")], "rejected": [said("user", ASKED), said("assistant", "I do not know")],
        },
        False,
    ),
    "TRL's": ({"prompt": [said("user", ASKED)], "chosen": ANSWERED, "rejected": [said("assistant", "I do not know")]}, False),
    "JSON texts": ({"chosen": CHAT, "rejected": CHAT.replace("{a}", "I do not know")}, False),
    "texts": ({"chosen": ASKED + " {a}", "rejected": ASKED + " I do not know"}, False),
    "orca": ({"system": "x", "question": ASKED, "chosen": "{a}", "rejected": "I do not know"}, False),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_are_split_into_what_was_asked_and_both_answers(backend: Backend, name: str) -> None:
    layout, turns = PAIRS[name]
    number = upload(backend, layout)
    fields = survey(backend, number, use="pairs").fields
    run = backend.client.create_run({**DPO, "pairs": {"kind": "dataset", "source": f"upload:{number}", **fields}})
    pairs = load_pairs(
        DatasetPairs.model_validate(run.config["pairs"]), fetch_upload=lambda _: backend.client.upload_content(number)
    ).train
    assert len(pairs) >= 30
    for pair in pairs:
        before = pair.messages or ()
        assert pair.rejected.text == "I do not know"
        n = int(pair.chosen.text) // 2
        assert before[-1]["content"] == ("Only the sum." if turns else ASKED.format(n=n))
        assert [turn["role"] for turn in before] == (["user", "assistant", "user"] if turns else ["user"])


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "numbers alone": ({"a": "{n}", "b": "{a}"}, {}, "No column holds prompts: a holds numbers; b holds numbers"),
    "several": ({"a": ASKED, "b": "Think of {n} and add it twice.", "c": "{a}"}, {}, "It may be a, b: choose one"),
    "one value": ({"prompt": "Say it.", "n": "{n}"}, {}, "prompt has one value throughout"),
    "an object": ({"prompt": ASKED, "answer": {"value": "{a}", "unit": "m"}}, {"answer_column": "answer"}, "is an object.*answer.value, answer.unit"),
    "no number": ({"prompt": ASKED, "answer": "about {a} or {n}"}, {"answer_column": "answer"}, "row 1 is not a number.*set it to task"),
    "braces": ({"prompt": CHAT, "answer": "{a}"}, {"prompt_column": "prompt"}, "name prompt.chat, which reads them"),
    "one column twice": ({"prompt": ASKED, "answer": "{a}"}, {"prompt_column": "prompt", "answer_column": "prompt"}, "prompt is the prompt column, too"),
    "an image": ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}], "answer": "{a}"}, {}, "No column holds prompts"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_model_can_read_is_refused_with_the_way_on(backend: Backend, name: str) -> None:
    layout, task, why = REFUSED[name]
    number = upload(backend, layout)
    numeric = {"functions": [{"kind": "correctness", "name": "right", "match": "numeric"}]}
    before = backend.client.runs(limit=200).items
    with pytest.raises(ApiError, match=why):
        backend.client.create_run(
            {**GRPO, "task": {"kind": "dataset", "source": f"upload:{number}", **task}, "rewards": numeric}
        )
    assert backend.client.runs(limit=200).items == before


def test_a_corrected_column_is_remembered_for_the_file(backend: Backend) -> None:
    number = upload(backend, {"question": ASKED, "hint": "Think of {n}, twice.", "answer": "{a}"})
    task = {"kind": "dataset", "source": f"upload:{number}", "prompt_column": "hint", "answer_column": "answer"}
    run = backend.client.create_run({**GRPO, "task": task})
    found = survey(backend, number)
    assert found.fields["prompt_column"] == "hint"
    assert found.said[0] == f"the columns are those of run {run.id}"
    assert found.examples[0].prompt == "Think of 3, twice."


def test_texts_that_numpy_prints_are_several_and_many_values_are_no_choices() -> None:
    assert Cells(x="['0' '4'\n '2']")["x.lettered"] == "A. 0\nB. 4\nC. 2"
    assert "x.lettered" not in Cells(x=[str(number) for number in range(27)])


def test_pairs_without_an_answer_and_numbers_beyond_a_float_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_text('{"prompt": "Which?", "answer": "1e999"}\n')
    assert looked.survey(tmp_path / "1.jsonl", SurveyQuery()).worked == []
    assert looked.survey(tmp_path / "1.jsonl", SurveyQuery(use="pairs", prompt_column="prompt")).examples == []
