"""The results.jsonl of evaluations with verifiers before 0.4: a line for each rollout, with its messages and its reward.

Metrics stand in `metrics` and once more beside it, or, in older files, beside it alone (verifiers/utils/save_utils.py at 00d83204).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from groupscope.conversation import Turn, text_in, turns_of
from groupscope.files.format import (
    About,
    Format,
    Lines,
    Step,
    first_object,
    json_object,
    known_rewards,
    number,
    with_metrics,
)
from groupscope.files.grouped import GroupedLines
from groupscope.files.verifiers import ERROR, LONGEST_LINE
from groupscope.recording import Completion

RESULTS = "results.jsonl"
FIELDS = {"prompt", "completion", "reward"}
OTHERS = {
    "example_id",
    "id",
    "generation_ms",
    "scoring_ms",
    "total_ms",
    "is_completed",
    "is_truncated",
}  # numbers that measure nothing


def _recognises(path: Path) -> bool:
    """A folder with a `results.jsonl`, or that file: by its first line."""
    file = path / RESULTS if path.is_dir() else path
    return file.suffix == ".jsonl" and first_object(file, LONGEST_LINE).keys() >= FIELDS


class _Results:
    """The one step, which stays open: a group's next rollout may stand in the last line."""

    def __init__(self, file: Path) -> None:
        self._file, folder = file, file.resolve().parent
        names = dict.fromkeys(name for _, line in Lines(file).new(final=True) for name in _measured(line))
        config = json_object(folder / "metadata.json")
        known = known_rewards(with_metrics({"reward": 1.0}, dict.fromkeys(names, 0.0)))
        known["model"] = {"source": str(config.get("model") or "")[:300]}
        self.about = About("verifiers", f"verifiers, {folder.name}", config=config, known=known)

    def steps(self, start: int, *, final: bool) -> Iterator[Step]:
        """All of them are of step 0."""
        if start > 0:
            return
        lines = GroupedLines(self._file, _group_of, called="result of verifiers", final=final)
        for key in lines.keys:
            groups = lines.group(key, _completion, evaluated=True)
            for one in groups:
                one.answer = key[1]
            yield Step(0, groups, open=True)
        yield Step(0, unreadable=lines.wrong, open=True)


def _group_of(line: Any) -> tuple[str, str | None]:
    """What was asked, and the answer. Raises ValueError for what is no result."""
    if not isinstance(line, dict) or FIELDS - line.keys():
        raise ValueError("no result of verifiers, which has a prompt, a completion and a reward")
    asked = [line.get("task"), line.get("example_id"), line["prompt"]]
    answer = line.get("answer")
    return json.dumps(asked, sort_keys=True), answer if isinstance(answer, str | None) else json.dumps(answer)


def _measured(line: Any) -> dict[str, float | None]:
    """The metrics of a rollout."""
    if not isinstance(line, Mapping):
        return {}
    found = line.get("metrics") if isinstance(line.get("metrics"), Mapping) else line
    known = {name: number(value) for name, value in (found or {}).items() if name not in OTHERS | {"reward"}}
    return {name: value for name, value in known.items() if value is not None}


def _said(messages: Any) -> str:
    found: Sequence[Any] = messages if isinstance(messages, list) else [messages or ""]
    return "\n".join(map(text_in, found))


def _completion(line: Mapping[str, Any]) -> tuple[str, Completion]:
    said, error, reward = line["completion"], line.get("error"), number(line["reward"])
    turns = [Turn("assistant", said)] if isinstance(said, str) else turns_of(said)
    if error:
        why = error.get("error_chain_str") or error.get("error") if isinstance(error, Mapping) else error
        turns.append(Turn(ERROR, str(why), failed=True))
    return _said(line["prompt"]), Completion(
        turns=turns,
        reward=reward,
        rewards=with_metrics({"reward": reward}, _measured(line)),
        token_count=int(number((line.get("token_usage") or {}).get("output_tokens")) or 0),
        finish_reason="length" if line.get("is_truncated") else "stop",
    )


FORMAT = Format(
    "verifiers-results",
    "the results.jsonl of verifiers before 0.4",
    _recognises,
    lambda path, _: _Results(path / RESULTS if path.is_dir() else path),
)
