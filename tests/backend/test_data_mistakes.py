"""Mistakes in a task that the rows of its upload show: said by preflight and by a creation, before a worker reads them."""

import json
from typing import Any

import pytest
from acting import GRPO
from serving import Backend, one_for_all

from backend.contract.client import ApiError
from backend.contract.protocol import ClaimRequest, WorkerInfo
from backend.contract.records import OwnReward, RewardFile

pytestmark = pytest.mark.usefixtures("read_here")

ROWS = [{"problem": f"{n} + {n}", "answer": str(2 * n), "source": f"{'ab'[n % 2]}.csv"} for n in range(30)]

backend = pytest.fixture(one_for_all)  # each test reads its own upload


def reading(backend: Backend, rows: list[Any] = ROWS, **task: object) -> dict[str, Any]:
    upload = backend.client.upload("x.jsonl", "\n".join(map(json.dumps, rows)).encode())
    columns = {"prompt_column": "problem", "answer_column": "answer"}
    return {**GRPO, "task": {"kind": "dataset", "source": f"upload:{upload.id}", **columns, **task}}


def errors(backend: Backend, config: dict[str, Any]) -> list[tuple[str | None, str]]:
    """What preflight refuses; a creation refuses the same."""
    found = [(one.field, one.text) for one in backend.client.preflight(config).messages if one.level == "error"]
    if found:
        with pytest.raises(ApiError) as caught:
            backend.client.create_run(config)
        details: Any = caught.value.details
        assert [(one["field"].removeprefix("config."), one["message"]) for one in details] == found
    return found


def test_a_name_in_braces_that_is_not_a_column_is_refused_with_the_columns_there_are(backend: Backend) -> None:
    text = "there are {prompt}, {problem}, {answer}, {source}. For braces as they stand, put spaces inside"
    for template in ("Calculate {problm}", "Calculate{problm}", "{problem} {problm}"):
        config = reading(backend, template=template)
        said = f"{{problm}} is not a column: nothing would replace it; {text}"
        assert errors(backend, config) == [("task.template", said)]
    both = errors(backend, reading(backend, template="{problm}? {anser}"))
    assert both == [("task.template", f"{{problm}}, {{anser}} are not columns: nothing would replace it; {text}")]


@pytest.mark.parametrize(
    "template",
    [
        "Calculate {problem}",
        'Answer {prompt} as {"answer": 1}',
        "{prompt} as {{answr}}",
        "{prompt} in \\boxed{x}, \\frac{a}{b}, x^{n}, x_{ij}, {1, 2}, {0,3}, { spaced }",
        "{prompt} {}",
    ],
)
def test_other_braces_are_text(backend: Backend, template: str) -> None:
    assert errors(backend, reading(backend, template=template)) == []


def test_a_share_of_a_source_without_rows_to_train_on_is_refused_with_the_sources_there_are(backend: Backend) -> None:
    config = reading(backend, source_column="source", shares={"a.csv": 1, "secnd.csv": 3})
    said = "no row to train on is from secnd.csv; the rows are from a.csv, b.csv"
    assert errors(backend, config) == [("task.shares", said)]
    assert errors(backend, reading(backend, source_column="source", shares={"a.csv": 1, "b.csv": 3})) == []
    rows = [{"problem": f"{n} + 1", "answer": str(n + 1), "source": f"{n % 25:02}.csv"} for n in range(100)]
    assert errors(backend, reading(backend, rows, source_column="source", shares={"24.csv": 1})) == []


def chats(*roles: str) -> list[Any]:
    return [{**row, "problem": [{"role": role, "content": "Hi"} for role in roles]} for row in ROWS]


def test_a_chat_that_cannot_be_asked_is_refused_with_its_row(backend: Backend) -> None:
    ends = [*ROWS[:3], *chats("user", "assistant")]
    said = "the chat of row 4 ends with assistant; its last turn must be the user's"
    assert errors(backend, reading(backend, ends)) == [("task.prompt_column", said)]
    [(_, stranger)] = errors(backend, reading(backend, chats("robot")))
    assert stranger.startswith("row 1 has a message that is not a text by system, user, assistant")
    said = "the prompt of row 1 is a chat; choose the prompt format chat"
    assert errors(backend, reading(backend, chats("user"), prompt_format="raw")) == [("task.prompt_format", said)]
    assert errors(backend, reading(backend, [*ROWS[:3], *chats("system", "user")])) == []


def needing(backend: Backend, *names: str, **task: object) -> list[str]:
    """The warnings at a function of which these parameters have no default."""
    function = OwnReward(function="right.py:reward", needs=list(names))
    file = RewardFile(name="right.py", functions=[function])
    backend.client.ask(ClaimRequest(worker=WorkerInfo(name="one", device="CPU", store="/s", reward_files=[file])))
    right = {"kind": "python", "name": "right", "weight": 1.0, "function": "right.py:reward"}
    config = {**reading(backend, **task), "rewards": {"functions": [right]}}
    messages = backend.client.preflight(config).messages
    return [one.text for one in messages if one.field == "rewards.functions.0.function"]


def test_a_column_that_a_function_takes_and_the_data_lacks_is_said_at_the_function(backend: Backend) -> None:
    [said] = needing(backend, "topic", "problem")
    lacks = "and the data has no such column; its columns are problem,"
    assert said == f"right.py:reward takes topic, {lacks} answer, source"
    rows = [{"problem": row["problem"], "solution": row["answer"]} for row in ROWS]
    [said] = needing(backend, "answer", rows=rows, answer_column=None)
    assert said.startswith(f"right.py:reward takes answer, {lacks} s")
    assert said.endswith("The answer column, if one is chosen, is given as answer")
    assert needing(backend, "answer", rows=rows, answer_column="solution") == []
    assert needing(backend, "answer", answer_column=None) == []


def test_what_a_file_has_and_cannot_score_is_an_error_at_the_reward_and_an_unknown_name_is_told_what_there_is(
    backend: Backend,
) -> None:
    file = RewardFile(
        name="right.py", functions=[OwnReward(function="right.py:f")], passed_over={"reward": "takes text"}
    )
    backend.client.ask(ClaimRequest(worker=WorkerInfo(name="one", device="CPU", store="/s", reward_files=[file])))
    for name, level, says in (
        ("reward", "error", "right.py:reward cannot score: takes text"),
        ("g", "warning", "right.py is there, and has f"),
    ):
        function = {"kind": "python", "name": "own", "weight": 1.0, "function": f"right.py:{name}"}
        messages = backend.client.preflight({**reading(backend), "rewards": {"functions": [function]}}).messages
        assert [(one.level, says in one.text) for one in messages if one.field == "rewards.functions.0.function"] == [
            (level, True)
        ]
