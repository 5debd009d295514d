"""The results.jsonl of evaluations with verifiers before 0.4: a line for each rollout, with its messages and its reward.

Metrics stand in `metrics` and once more beside it, or, in older files, beside it alone (verifiers/utils/save_utils.py at 00d83204).
"""

from pathlib import Path
from typing import Any

from groupscope.files.format import Format, first_object
from groupscope.files.openenv import LONGEST_LINE, RESULTS, Results

FIELDS = {"prompt", "completion", "reward"}
OTHERS = {"reward", "example_id", "id", "generation_ms", "scoring_ms", "total_ms", "is_completed", "is_truncated"}
"""Numbers that measure nothing."""


def _recognises(path: Path) -> bool:
    """A folder with a `results.jsonl`, or that file: by its first line."""
    file = path / RESULTS if path.is_dir() else path
    return file.suffix == ".jsonl" and first_object(file, LONGEST_LINE).keys() >= FIELDS


def _translated(line: Any) -> dict[str, Any]:
    """In OpenEnv's words. Raises ValueError for what is no result."""
    if not isinstance(line, dict) or FIELDS - line.keys():
        raise ValueError("no result of verifiers, which has a prompt, a completion and a reward")
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
    "verifiers-results",
    "the results.jsonl of verifiers before 0.4",
    _recognises,
    lambda path, _: Results(path, "verifiers", _translated),
)
