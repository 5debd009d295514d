"""What is not understood of messages, groups and files is shown or named as it stands, and ends nothing but itself."""

import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from importing import FOREIGN, groups_of, imported, opened
from pydantic import BaseModel
from serving import TOKEN, Backend
from test_import_others import RUNS, completions_of

from backend.contract.conversation import stretches
from groupscope.conversation import turns_of
from groupscope.recording import Completion, Group, start_run

CALL = {"name": "search", "arguments": '{"q": 1}'}


class Function(BaseModel):
    name: str
    arguments: str


class Called(BaseModel):
    id: str
    function: Function


class OpenAiMessage(BaseModel):
    """As OpenAI's client has it."""

    role: str
    content: str | None = None
    tool_calls: list[Called] | None = None


class Unprintable:
    role = "assistant"

    def model_dump(self) -> Any:
        raise RuntimeError

    __str__ = model_dump


ANSWER = {"role": "tool", "tool_call_id": "a", "content": "four"}
OURS = OpenAiMessage(role="assistant", tool_calls=[Called(id="a", function=Function(**CALL))])
LOOP: list[Any] = []
LOOP.append(LOOP)
UNDERSTOOD: list[tuple[Any, list[tuple[str, str, str | None]]]] = [
    ([OURS, ANSWER], [("assistant", '{"q": 1}', "search"), ("tool", "four", "search")]),
    (OURS, [("assistant", '{"q": 1}', "search")]),
    ([SimpleNamespace(role="user", content=[SimpleNamespace(type="text", text="hi")])], [("user", "hi", None)]),
    ([{"role": "assistant", "content": "x", "function_call": CALL}],
     [("assistant", "x", None), ("assistant", '{"q": 1}', "search")]),
    ([{"role": "function", "name": "search", "content": "four"}], [("function", "four", "search")]),
    ([{"role": "assistant", "tool_calls": json.dumps([{"id": "a", "function": CALL}])}], [("assistant", '{"q": 1}', "search")]),
    ([{"role": "assistant", "tool_calls": json.dumps(CALL)}], [("assistant", '{"q": 1}', "search")]),
    ([{"role": "assistant", "tool_calls": "call search"}], [("assistant", "call search", "a tool")]),
    ([{"role": "assistant", "tool_calls": [{"kind": 7}]}], [("assistant", '{"kind": 7}', "a tool")]),
    ([{"finish_reason": "stop", "message": {"role": "assistant", "content": "x"}}], [("assistant", "x", None)]),
    ([{"role": "assistant", "content": 7}, {"role": "a" * 300, "content": None}],
     [("assistant", "7", None), ("a" * 200, "", None)]),
    ([{"role": "assistant", "tool_calls": [{"function": 7}]}],
     [("unknown", "{'role': 'assistant', 'tool_calls': [{'function': 7}]}", None)]),
    ([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": LOOP}}]}, "said", None, 7],
     [("unknown", "{'role': 'assistant', 'tool_calls': [{'function': {'name': 'f', 'arguments': [[...]]}}]}", None),
      ("unknown", "said", None),
      ("unknown", "None", None), ("unknown", "7", None)]),
    ([Unprintable()], [("unknown", "[Unprintable]", None)]),
    (None, []),
    (7, [("unknown", "7", None)]),
]  # fmt: skip


@pytest.mark.parametrize(("messages", "expected"), UNDERSTOOD)
def test_messages_are_turns_whatever_they_are(messages: Any, expected: list[tuple[str, str, str | None]]) -> None:
    assert [(turn.role, turn.text, turn.tool) for turn in turns_of(messages)] == expected


def test_what_a_script_could_not_record_stands_in_the_runs_log_with_its_count(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUPSCOPE_TOKEN", TOKEN)
    good = Group("p", [Completion("a", 1.0, finish_reason="tool_calls"), Completion("b", 0.0, finish_reason="length")])
    bad: Any = Group("p", [7])  # type: ignore[list-item]
    recording = start_run("mine", backend=backend.url, home=backend.home)
    recording.log_groups([good, bad, bad], 0)
    recording.log_metrics({"x" * 300: 1.0, "loss": 0.5}, 0)
    recording.log_groups([good], 1)
    recording.log_groups([good], 0)
    recording.log_groups(None, 2)  # type: ignore[arg-type]
    recording.finish()
    [run] = backend.client.runs(kind="recorded").items
    said = [line.message for line in backend.client.logs(run.id).items]
    for text in (
        "left out: 2 groups; ",
        "left out: 1 metrics; ",
        "left out: 1 calls for a step that was sent before; ",
        "left out: 1 calls; ",
    ):
        assert len([line for line in said if line.startswith(text)]) == 1, said
    [group] = groups_of(backend, run.id, 0)
    assert ([one.finish_reason for one in group.completions], group.truncated) == (["stop", "length"], 1)


@pytest.mark.parametrize("name", ["trl", "art", "tinker", "nemo-rl", "verl", "prime-rl"])
def test_ten_damaged_files_are_named_and_the_rest_is_imported(backend: Backend, tmp_path: Path, name: str) -> None:
    path, files, groups = MANY[name](tmp_path)
    parts = {"tinker": 2, "prime-rl": 4}.get(name, 1)
    for place, file in enumerate(files[:10]):
        file.write_bytes([b"", b"\x00\xff" * 40, file.read_bytes()[:100], b"{\n"][place % 4])
    run, said = imported(backend, path)
    kept = backend.client.groups(run.id, limit=200).items
    assert len(kept) == groups * (len(files) - 10)
    logs = " ".join(line.message for line in backend.client.logs(run.id, limit=200).items)
    assert name != "trl" or "checkpoint-2/trainer_state.json: no state of TRL's" in logs
    for file in files[:10]:
        named = "/".join(file.parts[-parts:])
        assert named in logs, (named, logs)
        assert named in said[-1], (named, said)


def _trl(folder: Path) -> tuple[Path, list[Path], int]:
    (folder / "completions").mkdir()
    (folder / "checkpoint-2").mkdir()
    (folder / "checkpoint-2" / "trainer_state.json").write_text("{")
    files = [folder / "completions" / f"completions_{step:05d}.parquet" for step in range(1, 16)]
    for step, file in enumerate(files, 1):
        rows = [{"step": step, "prompt": prompt, "completion": f"{one}", "right": float(one), "advantage": one - 0.5}
                for prompt in ("a", "b") for one in (0, 1)]  # fmt: skip
        pq.write_table(pa.Table.from_pylist(rows), file)
    return folder, files, 2


def _copies(name: str, sample: str, made: str) -> Callable[[Path], tuple[Path, list[Path], int]]:
    def make(folder: Path) -> tuple[Path, list[Path], int]:
        files = [folder / "run" / made.format(step) for step in range(1, 16)]
        for file in files:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes((RUNS[name] / sample).read_bytes())
        return folder / "run", files, 3

    return make


MANY = {
    "trl": _trl,
    "art": _copies("art", "trajectories/train/0001.parquet", "trajectories/train/{:04d}.parquet"),
    "tinker": _copies(
        "tinker", "iteration_000000/train_rollout_summaries.jsonl", "iteration_{:06d}/train_rollout_summaries.jsonl"),
    "nemo-rl": _copies("nemo-rl", "train_data_step1.jsonl", "train_data_step{}.jsonl"),
    "verl": _copies("verl", "rollouts/1.jsonl", "rollouts/{}.jsonl"),
    "prime-rl": _copies(
        "prime-rl", "rollouts/step_1/train/effective/traces.jsonl", "rollouts/step_{}/train/effective/traces.jsonl"),
}  # fmt: skip


def test_a_folder_that_may_not_be_read_is_named_and_the_others_are_imported(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copytree(RUNS["verl"], tmp_path / "good")
    (tmp_path / "shut").mkdir()
    listed = Path.iterdir

    def refused(self: Path) -> Any:  # as the system does to others than root
        if self.name == "shut":
            raise PermissionError(13, os.strerror(13), str(self))
        return listed(self)

    monkeypatch.setattr(Path, "iterdir", refused)
    _, said = imported(backend, tmp_path)
    assert f"{tmp_path / 'shut'} cannot be read and is left out: Permission denied" in said
    assert said[-1].endswith("3 steps, 18 groups, 72 completions")


def result(example: int, reward: float, **rest: Any) -> dict[str, Any]:
    said = [{"role": "assistant", "content": "4", "tool_calls": json.dumps([CALL])}]
    asked = [{"role": "user", "content": f"What is {example}?"}]
    return {
        "example_id": example,
        "prompt": asked,
        "completion": said,
        "reward": reward,
        "answer": "4",
        "task": "sums",
        **rest,
    }


def test_results_of_verifiers_before_0_4_are_read(backend: Backend, tmp_path: Path) -> None:
    lines = [
        result(0, 1.0, metrics={"format": 0.5}, format=0.5),
        result(1, 0.0, format=0.25, generation_ms=7.0),  # of 0.1
        result(
            0, 0.0, metrics={"format": 0.0}, is_truncated=True, error={"error": "E", "error_chain_str": "E: no room"}
        ),
        {**result(1, 1.0), "prompt": "What is 1?", "completion": "4", "example_id": 2},
    ]
    (tmp_path / "results.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in [*lines, {"prompt": 1}, {**result(3, 1.0), "prompt": math.nan}])
    )
    (tmp_path / "metadata.json").write_text('{"model": "some/model", "cap": Infinity}')
    run, said = imported(backend, tmp_path)
    assert said[1].startswith(
        f"run {run.id}: 0 steps, 3 groups, 4 completions; 2 lines could not be read:\n  results.jsonl, line 5: "
    )
    assert (run.config["trainer"]["name"], run.config["model"]) == ("verifiers", {"source": "some/model"})
    first, second, third = groups_of(backend, run.id, 0)
    assert (first.prompt, first.answer, [one.reward for one in first.completions]) == ("What is 0?", "4", [1.0, 0.0])
    assert [one.finish_reason for one in first.completions] == ["stop", "length"]
    assert [text for _, text in stretches(first.completions[1].text, first.completions[1].turns)][-1] == "E: no room"
    scores = [{score.name: score.raw for score in one.rewards} for one in (*first.completions, *second.completions)]
    assert scores == [{"reward": 1.0, "format": 0.5}, {"reward": 0.0, "format": 0.0}, {"reward": 0.0, "format": 0.25}]
    assert (third.prompt, third.completions[0].text) == ("What is 1?", "4")


def test_a_turn_without_a_text_and_the_largest_rewards_end_no_import(backend: Backend, tmp_path: Path) -> None:
    turns: list[list[Any]] = [[None], [7], ["four"], ["five"]]
    rewards = [0.0, 0.0, -sys.float_info.max, 1.0]
    made = [
        [{"turns": [{"role": "tool", "text": one}], "reward": reward} for one in said] * 2
        for said, reward in zip(turns, rewards, strict=True)
    ]
    lines = [{"step": step, "prompt": "2 + 2", "completions": some} for step, some in enumerate(made)]
    (tmp_path / "run.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [{"groupscope": 1}, *lines]))
    run, said = imported(backend, tmp_path / "run.jsonl")
    assert said[1].partition(":\n")[2].splitlines() == [
        "  run.jsonl, line 3: text: a text is expected",
        "  group 0 of step 2: intermediate overflow in fsum",
    ]
    assert [len(groups_of(backend, run.id, step)) for step in range(4)] == [1, 0, 0, 1]


def test_metrics_of_a_step_beyond_the_most_are_named(backend: Backend, tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    step = {"step": 0, "metrics": {f"m{at}": 0.0 for at in range(902)}}
    file.write_text("\n".join(map(json.dumps, ({"groupscope": 1, "name": "mine"}, step, step))))
    said = imported(backend, file)[1]
    assert "2 lines could not be read:\n  of more than 900 metrics in step 0: m900" in "\n".join(said)


@pytest.mark.parametrize("others", [True, False], ids=["beside a step", "alone"])
def test_a_file_that_is_named_by_a_time_is_left_out_by_its_number(
    backend: Backend, tmp_path: Path, others: bool
) -> None:
    row = json.dumps({"input": "a", "output": "b", "gts": "4", "score": 1.0, "step": 1})
    for name in ["1"] * others + ["20260930120000"]:
        (tmp_path / f"{name}.jsonl").write_text(f"{row}\n")
    run, said = imported(backend, tmp_path)
    assert "1 line could not be read:\n  a step has the number 20,260,930,119,999, and 0 to" in said[-1]
    assert len(groups_of(backend, run.id, 0)) == others


def test_rows_of_verl_without_a_truth_are_groups(tmp_path: Path) -> None:
    rows = [{"input": f"q{place // 2}", "output": "4", "score": place % 2} for place in range(4)]
    (tmp_path / "1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    [step] = opened("verl", tmp_path).steps(0, final=True)
    assert [(group.prompt, group.answer, [one.reward for one in group.completions]) for group in step.groups] == [
        ("q0", None, [0.0, 1.0]),
        ("q1", None, [0.0, 1.0]),
    ]


CHOICE = {"finish_reason": "stop", "index": 0, "message": {"role": "assistant", "content": "4", "tool_calls": [CALL]}}
ASKED = {"role": "user", "content": [{"type": "text", "text": "q"}]}
ANTHROPIC = {"request": {"messages": [ASKED]}, "response": {"content": [{"type": "text", "text": "4"}]}}
VERSION_2 = [
    {"messages_and_choices": [ASKED, CHOICE]},
    {"exchanges": {"chat_completions": [{"request": {"messages": [ASKED]}, "response": {"choices": [CHOICE]}}]}},
    {"exchanges": {"messages": [ANTHROPIC]}},
    {"exchanges": {"completions": [{"request": {"prompt": "q"}, "response": {"choices": [{"text": "4"}]}}]}},
    {"exchanges": {"responses": [{"request": {"input": "q"}, "response": {"output": [{"role": "assistant", "content": "4"}]}}]}},
]  # fmt: skip


def test_arts_second_version_is_read_from_its_json_and_its_older_lines_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "trajectories" / "train"
    folder.mkdir(parents=True)
    kinds = pa.schema(
        [("group_index", pa.int64()), ("trajectory_json", pa.string()), ("reward", pa.float64()), ("metrics", pa.string()),
                       ("messages", pa.list_(pa.struct([("role", pa.string())])))])  # fmt: skip
    rows: list[dict[str, Any]] = [
        {"group_index": 0, "trajectory_json": json.dumps(one), "reward": 0.5} for one in VERSION_2
    ]
    rows += [
        {"group_index": 1},
        {"group_index": 2, "reward": 1.0},
    ]  # a group of which all broke off; what has no messages anywhere
    pq.write_table(pa.Table.from_pylist(rows, schema=kinds), folder / "0002.parquet")
    old = {"reward": 0.25, "metrics": {"acc": 1}, "metadata": {"answer": "4"}, "messages_and_choices": [ASKED, CHOICE]}
    (folder / "0001.jsonl").write_text(json.dumps({"trajectories": [old, old]}) + "\n{\n")
    steps = list(opened("art", tmp_path).steps(0, final=True))
    [older, newer] = [group for step in steps for group in step.groups]
    assert [one.reward for one in (*older.completions, *newer.completions)] == [0.25] * 2 + [0.5] * 5
    for one in (*older.completions, *newer.completions):
        assert (one.turns[0].role, one.turns[0].text, one.turns[0].is_trained) == ("assistant", "4", True)
    assert (older.prompt, older.answer, newer.prompt) == ("q", "4", "q")
    wrong = [one for step in steps for one in step.unreadable]
    assert [one.split(":")[0] for one in wrong] == ["train/0001.jsonl, line 2", "train/0002.parquet, group 2"]


def test_a_line_whose_calls_are_text_is_no_longer_lost(tmp_path: Path) -> None:
    path = copytree(RUNS["verifiers"], tmp_path / "run")
    file = path / "traces.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for message in (node["message"] for line in lines for trace in line["traces"] for node in trace["nodes"]):
        if message.get("tool_calls"):
            message["tool_calls"] = json.dumps(message["tool_calls"])
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    expected = completions_of(opened("verifiers", FOREIGN / "verifiers" / "verifiers"), final=True)
    assert completions_of(opened("verifiers", path), final=True) == expected
