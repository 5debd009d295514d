"""The child process that runs the reward functions; `RewardProcess` starts it and kills it.

It speaks JSON lines. In: first `{"functions": [{"kind", "params"}, …], "time_limit", "path"}`, then one batch after another:
`{"samples": [the fields of a Completion, …], "first": index of the first function to call}`.
Out: `"ready"` for the configuration and for each batch, once its libraries are imported, or `{"unavailable": why}` where a
function cannot be; then one line for each call, in order: `{"value": 0.5}`, `{"error": …}` for a completion that was not
scored, or `{"breach": {"expected", "got"}}` for a broken contract.
"""

import faulthandler
import importlib
import json
import math
import numbers
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import BinaryIO

from worker.rewards.functions import BrokenContract, Completion, FunctionUnavailable, in_words, load_function

LARGEST_REWARD = 1e15
"""Beyond it, squares of weighted sums no longer fit in 32 bits."""

LONGEST_TRACEBACK = 2048
MEMORY_BYTES = 4 * 2**30
FILE_BYTES = 16 * 2**20
GRACE_SECONDS = 1.0

Call = Callable[[Completion], object]


def main(functions_module: str) -> None:
    """Serve batches until the worker closes the pipe or is gone."""
    requests, replies = take_over_pipes()
    settings = json.loads(requests.readline())
    table = importlib.import_module(functions_module).FUNCTIONS
    sys.path += settings["path"]
    calls: list[Call] = [partial(table[function["kind"]], **function["params"]) for function in settings["functions"]]
    try:
        for function in settings["functions"]:
            if "function" in function["params"]:  # one that the operator allowed
                load_function(function["params"]["function"])
    except FunctionUnavailable as error:
        reply(replies, {"unavailable": f"{error}\n{''.join(traceback.format_exception(error)):.{LONGEST_TRACEBACK}}"})
        return
    confine()
    reply(replies, "ready")
    owner = os.getpid()
    for line in requests:
        batch = json.loads(line)
        completions = [Completion(**sample) for sample in batch["samples"]]
        import_slow_libraries(settings["functions"], completions)
        reply(replies, "ready")
        pairs = [(call, completion) for completion in completions for call in calls][batch["first"] :]
        for call, completion in pairs:
            outcome = score(call, completion, settings["time_limit"])
            if os.getpid() != owner:
                os._exit(0)  # the function forked, and this is its child: only the owner answers
            reply(replies, outcome)


def take_over_pipes() -> tuple[BinaryIO, int]:
    """Where requests come from and replies go to. What functions print goes to stderr, what they read is empty."""
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.dup(1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    faulthandler.enable()
    return requests, replies


def confine() -> None:
    """Bound memory, file sizes and (where the user is not root, whom no such limit binds) new processes."""
    _limit(resource.RLIMIT_AS, MEMORY_BYTES)
    _limit(resource.RLIMIT_FSIZE, FILE_BYTES)
    _limit(resource.RLIMIT_CORE, 0)
    # It counts every process of the user: 0 forbids another one, however many the user runs elsewhere.
    _limit(resource.RLIMIT_NPROC, 0)


def _limit(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    try:
        resource.setrlimit(what, (most, hard))
    except (OSError, ValueError):
        return  # macOS refuses some of them


def import_slow_libraries(functions: Sequence[dict[str, dict[str, str]]], completions: Sequence[Completion]) -> None:
    """Import what some matches need, so that its seconds are not counted against the first completion."""
    matches = {function["params"].get("match") for function in functions}
    if "symbolic" in matches:
        importlib.import_module("worker.rewards.symbolic")
    if "task" in matches and any(completion.verifier.get("kind") == "reasoning_gym" for completion in completions):
        importlib.import_module("worker.rewards.gym")


def score(call: Call, completion: Completion, time_limit: float) -> dict[str, object]:
    """One call's outcome. The kernel ends the process a little after the time limit, even if the worker is gone."""
    _limit(resource.RLIMIT_CPU, math.ceil(time.process_time() + time_limit + GRACE_SECONDS))
    signal.setitimer(signal.ITIMER_REAL, time_limit + GRACE_SECONDS)
    try:
        return outcome_of(call(completion))
    except BrokenContract as broken:
        return {"breach": {"expected": broken.expected, "got": broken.got}}
    except BaseException as error:  # noqa: BLE001  # the process boundary: SystemExit and MemoryError are outcomes too
        return {"error": f"reward_error: {describe(error)}"}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def outcome_of(value: object) -> dict[str, object]:
    """A number is a value; NaN, infinity, None and what no loss could hold leave unscored; all else raises BrokenContract."""
    if value is None:
        return {"error": "reward_value: it returned None, which leaves the completion unscored"}
    if not isinstance(value, numbers.Real):
        raise BrokenContract("one number for each completion", f"a value of type {in_words(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not abs(number) <= LARGEST_REWARD:
        return {"error": f"reward_value: it returned {number}; a reward is a finite number up to {LARGEST_REWARD:g}"}
    return {"value": number}


def describe(error: BaseException) -> str:
    """The error in a line, then the beginning of its traceback."""
    summary = traceback.format_exception_only(error)[-1]
    lines = "".join(traceback.format_exception(error))
    return f"{summary.rstrip():.500}\n{lines:.{LONGEST_TRACEBACK}}"


def reply(replies: int, message: object) -> None:
    """Write one line, whole."""
    line = memoryview(json.dumps(message).encode() + b"\n")
    while line:
        line = line[os.write(replies, line) :]


if __name__ == "__main__":
    main(sys.argv[1])
