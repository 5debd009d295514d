"""The results.jsonl of OpenEnv, which `openenv collect` writes, and of verifiers before 0.4: a line for each episode.

Episodes have neither a step nor a group: all are of step 0, and those of the same task, or of the same first messages, are a group.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from groupscope.conversation import completion_start, text_in, turns_of
from groupscope.files.format import (
    MALFORMED,
    About,
    Format,
    Lines,
    Step,
    first_object,
    json_object,
    known_rewards,
    number,
    numbers,
    with_metrics,
)
from groupscope.files.grouped import GroupedLines
from groupscope.recording import Completion
from groupscope.tokens import Tokens

RESULTS = "results.jsonl"
FIELDS = {"episode_id", "messages", "reward", "tool_trace", "verify_metrics"}
OF_VERIFIERS = {"prompt", "completion", "reward"}
OTHERS = {"reward", "example_id", "id", "generation_ms", "scoring_ms", "total_ms", "is_completed", "is_truncated"}
TRACE_VERSION = 1
LONGEST_LINE = 2**26  # bytes of the first, by which the file is recognised


def _recognises(path: Path, fields: set[str] = FIELDS) -> bool:
    """A folder with a `results.jsonl`, or that file: by the first line."""
    file = path / RESULTS if path.is_dir() else path
    return file.suffix == ".jsonl" and first_object(file, LONGEST_LINE).keys() >= fields


class _Results:
    def __init__(self, path: Path, trainer: str, translated: Callable[[Any], Any] = lambda line: line) -> None:
        self._file, self._translated = path / RESULTS if path.is_dir() else path, translated
        folder, lines = self._file.resolve().parent, Lines(self._file).new(final=True)
        names = dict[str, None]()
        for _, line in lines:
            with suppress(*MALFORMED):  # it is named as the steps are read
                names |= dict.fromkeys(_measured(translated(line)))
        config = json_object(folder / "metadata.json")
        known = known_rewards(with_metrics({"reward": 1.0}, dict.fromkeys(names, 0.0)))
        known["model"] = {"source": str(config.get("model") or "")[:300]}
        self.about = About(trainer, f"{trainer}, {folder.name}", config=config, known=known)

    def steps(self, start: int, *, final: bool) -> Iterator[Step]:
        """The one step stays open: a task's next episode may stand in the last line."""
        if start > 0:
            return
        called, read = f"episode of {self.about.trainer}", self._translated
        lines = GroupedLines(self._file, lambda line: _group(read(line)), called=called, final=final)
        for key in lines.keys:
            groups = lines.group(key, lambda line: _completion(read(line)), evaluated=True)
            yield Step(0, [replace(one, answer=json.loads(key)[-1]) for one in groups], open=True)
        yield Step(0, unreadable=lines.wrong, open=True)


def _group(line: Any) -> str:
    messages = line["messages"]
    answer = None if line.get("answer") is None else str(line["answer"])
    return json.dumps([line.get("task"), messages[: completion_start(messages)], answer], sort_keys=True)


def _completion(line: Mapping[str, Any]) -> tuple[str, Completion]:
    messages = line["messages"]
    before = messages[: completion_start(messages)]
    turns = turns_of(messages)[len(turns_of(before)) :]
    results = [entry.get("result") or {} for entry in line["tool_trace"]]
    answers = [turn for turn in turns if turn.role == "tool"]
    for turn, result in zip(answers, results, strict=False):
        turn.failed = bool(result.get("error"))
        if turn.failed and str(result["error"]) not in turn.text:
            turn.text = "\n".join(filter(None, (turn.text, str(result["error"]))))
    reward = number(line["reward"])
    said = "\n".join(map(text_in, before)) or json.dumps(line.get("task"), ensure_ascii=False)
    return said, Completion(
        turns=turns,
        reward=reward,
        rewards=with_metrics({"reward": reward}, _measured(line)),
        tokens=_tokens(line),
        finish_reason=line.get("finish_reason", "stop"),
    )


def _measured(line: Any) -> dict[str, float | None]:
    """The metrics of an episode that are numbers; none of a line that has none."""
    found = line.get("verify_metrics") if isinstance(line, dict) else None
    return numbers(found) if isinstance(found, dict) else {}


def _tokens(line: Mapping[str, Any]) -> Tokens | None:
    """Of a TrainingTrace among the artifacts of the episode, if each of its calls goes on from the one before."""
    kept = [*(line.get("artifacts") or {}).values(), *(line.get("extra") or {}).values()]
    traces = [
        one for one in kept if isinstance(one, dict) and one.get("schema_version") == TRACE_VERSION and "turns" in one
    ]
    calls = traces[0]["turns"] if len(traces) == 1 else []
    ids: list[int] = []
    trained: list[bool] = []
    logprobs: list[float | None] = []
    for call in calls:
        prompt, completion = call["prompt_token_ids"], call["completion_token_ids"]
        if prompt[: len(ids)] != ids:
            return None
        between = len(prompt) - len(ids)
        ids = [*prompt, *completion]
        trained += [False] * between + [bool(one) for one in call["loss_mask"][len(prompt) :]]
        logprobs += [None] * between + call["per_token_logps"]
    if not calls:
        return None
    skip = len(calls[0]["prompt_token_ids"])
    return Tokens(ids[skip:], trained=trained[skip:], sampling_logprob=logprobs[skip:])


def _translated(line: Any) -> dict[str, Any]:
    """A result of verifiers in OpenEnv's words, its metrics in `metrics` or, in older files, beside it (save_utils.py)."""
    if not isinstance(line, dict) or OF_VERIFIERS - line.keys():
        return {}
    measured = line["metrics"] if isinstance(line.get("metrics"), dict) else line
    error = line.get("error")
    why = error.get("error_chain_str") or error.get("error") if isinstance(error, dict) else error
    asked, said = ([{"role": role, "content": one}] if isinstance(one, str) else list(one or ())
                   for role, one in (("user", line["prompt"]), ("assistant", line["completion"])))  # fmt: skip
    return {
        "task": [line.get("task"), line.get("example_id")],
        "messages": [*asked, *said, *([{"role": "error", "content": str(why)}] if why else [])],
        "reward": line["reward"],
        "answer": line.get("answer"),
        "verify_metrics": {name: value for name, value in measured.items() if name not in OTHERS},
        "tool_trace": [],
        "finish_reason": "length" if line.get("is_truncated") else "stop",
    }


FORMAT = Format(
    "openenv",
    "the results.jsonl of OpenEnv",
    _recognises,
    lambda path, _: _Results(path, "OpenEnv"),
)
VERIFIERS = Format(
    "verifiers-results",
    "the results.jsonl of verifiers before 0.4",
    lambda path: _recognises(path, OF_VERIFIERS),
    lambda path, _: _Results(path, "verifiers", _translated),
)
