"""What Schemathesis is taught about this API; it loads this file itself (SCHEMATHESIS_HOOKS).

Three of four numbers in a path, and of the attempts in a body, become ones that there are, and three of four messages of a
worker show the secret of their run's claim: drawn at random they would name nothing, and no fuzzer would get beyond the door.
GROUPSCOPE_FUZZ_SECRETS names the file of these secrets, GROUPSCOPE_FUZZ_COUNTS the one in which answers are counted.
"""

import atexit
import json
import os
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any
from zlib import crc32

import schemathesis
from hypothesis import strategies as st

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

import records  # noqa: E402  # found by the line before

from backend.contract.protocol import PROTOCOL, SECRET_HEADER  # noqa: E402

_LARGEST = {"upload_id": 2, "sweep_id": 1, "choice_id": 9}  # groups and completions: more than 30 of each
_RUNS = {"DELETE": records.FREE, "finish": records.ENDING, "fail": records.ENDING}  # by method, or by the end of a path
_SECTIONS = ("task", "sampling", "rewards", "algorithm", "optimizer", "budget", "telemetry", "model")
_SECRETS: dict[str, str] = json.loads(Path(os.environ["GROUPSCOPE_FUZZ_SECRETS"]).read_text())
_answered: dict[str, Counter[str]] = defaultdict(Counter)


def _known(number: Any, known: range) -> Any:
    """Three of four whole numbers as one of those that there are; the rest, and what is no number, as it was drawn."""
    if not isinstance(number, int) or isinstance(number, bool) or number % 4 == 3:
        return number
    return known[number // 4 % len(known)]


def _known_in_path(name: str, label: str) -> range:
    if name == "run_id":
        method, path = label.split()
        return _RUNS.get(method, _RUNS.get(path.rpartition("/")[2], records.HELD))
    if label.endswith("/choices"):
        return range(1, 2)  # the group whose completions `map_body` names
    return range(3) if name == "step" else range(1, _LARGEST.get(name, 30) + 1)


@schemathesis.hook
def map_path_parameters(context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    label = context.operation.label
    return {name: _known(value, _known_in_path(name, label)) for name, value in (path_parameters or {}).items()}


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    if not isinstance(body, dict):
        return body
    for name, known in {"attempt": range(1, 2), "better": range(1, 5), "worse": range(1, 5)}.items():
        if name in body:
            body[name] = _known(body[name], known)
    if isinstance(body.get("protocol"), int):  # a claim
        body["protocol"] = _known(body["protocol"], range(PROTOCOL, PROTOCOL + 1))
    if "seq" in body:  # a report that no other was, of a step of its own
        drawn = crc32(str(body).encode())
        body["seq"], body["step"] = drawn, drawn % 98 + 2 if drawn % 4 else body.get("step")
    if isinstance(body.get("config"), dict):
        body["config"] = _mostly_default(body["config"])
    for run in body["runs"] if isinstance(body.get("runs"), list) else ():
        if isinstance(run, dict) and isinstance(run.get("config"), dict):
            run["config"] = _mostly_default(run["config"])
    return body


def _mostly_default(config: dict[str, Any]) -> dict[str, Any]:
    """Of a whole configuration that was drawn nearly nothing fits together: one part of it, among defaults."""
    drawn = [name for name in _SECTIONS if name in config]
    if len(drawn) < 2:
        return config
    part = drawn[len(str(config)) % len(drawn)]
    return {"kind": config.get("kind", "grpo"), part: config[part]}


@schemathesis.hook
def map_query(context: Any, query: dict[str, Any] | None) -> dict[str, Any] | None:
    if query and isinstance(query.get("runs"), str) and len(query["runs"]) % 4 != 3:
        query["runs"] = ",".join(str(1 + ord(letter) % 24) for letter in query["runs"][:25] or "1")
    return query


@schemathesis.hook
def map_case(context: Any, case: Any) -> Any:
    run_id = str((case.path_parameters or {}).get("run_id"))
    if case.operation.label.endswith("/reports"):
        case.body = _reports(crc32(str(case.body).encode()))
    if run_id in _SECRETS and "/worker/" in case.operation.label and crc32(str(case.body).encode()) % 4 != 3:
        case.headers[SECRET_HEADER] = _SECRETS[run_id]
        if case.operation.label.endswith("/checkpoint") and isinstance(case.body, dict):
            case.body["path"] = f"run-{run_id}/step-{case.body.get('step')}"  # in the folder that is the run's
    return case


def _reports(drawn: int) -> bytes:
    """Lines with a report each; three of four times those of an attempt that there is, of steps that nobody reported."""
    metrics = {"reward": float(drawn % 7)}
    lines = [
        {
            "attempt": 1 if drawn % 4 != 3 else drawn,
            "seq": drawn + place,
            "step": drawn % 90 + place,
            "metrics": metrics,
        }
        for place in range(drawn % 5)
    ]
    return "\n".join(map(json.dumps, lines)).encode()


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:
    _answered[case.operation.label][str(response.status_code)] += 1


@atexit.register
def _write_counts() -> None:
    if file := os.environ.get("GROUPSCOPE_FUZZ_COUNTS"):
        Path(file).write_text(json.dumps(_answered))


_TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=8,
)
_ROWS = st.fixed_dictionaries({"prompt": _VALUES}, optional={"answer": _VALUES}) | st.dictionaries(_TEXT, _VALUES)
_ODD_ROWS = _ROWS | st.lists(_VALUES) | st.fixed_dictionaries({"prompt": st.floats()})  # NaN and Infinity, too
_LINES = (st.lists(_ROWS, min_size=1, max_size=8) | st.lists(_ODD_ROWS, max_size=8)).map(
    lambda rows: "\n".join(map(json.dumps, rows)).encode()
)
schemathesis.openapi.media_type("application/x-ndjson", _LINES | st.binary(max_size=200))
