"""The child process that runs the reward functions; `RewardProcess` starts it and kills it.

It speaks JSON lines. In: first `{"functions": [{"kind", "params", "file"}, …], "time_limit", "path", "own", "texts"}`, where `own` is
the folder of rewards and `texts` what its files were before, if they ran before; then one batch after another: `{"samples": [the
fields of a Completion, …], "calls": [[function, first, end], …]}`, where a call is of a function on the samples from `first` on.
Out: `{"ready": texts of the files that were imported}` for the configuration, or `{"unavailable": why}` if a function cannot be;
`"ready"` for each batch, once its libraries are imported; then one line for each call, in order, with the outcome of each of its
samples, or a single one for all of them: `{"value": 0.5}`, `{"error": …}` for a completion that was not scored, or `{"breach": {"expected",
"got"}}` for a broken contract. With `"describe": file`: `{"described": the fields of a RewardFile}`, and that is all.
"""

import faulthandler
import hashlib
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
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from backend.contract.verdicts import Unclear, match_of
from worker.rewards.child_process import START_LIMIT
from worker.rewards.functions import (
    BrokenContract,
    Completion,
    FunctionUnavailable,
    kind_and_length,
    load_function,
    python_scores,
    require_settings,
)
from worker.rewards.own_modules import (
    LONGEST_TRACEBACK,
    OwnModules,
    Refused,
    describe,
    error_text,
    require_reward,
    summary,
)

LARGEST_REWARD = 1e15
"""Beyond it, squares of weighted sums no longer fit in 32 bits."""

MEMORY_BYTES = 4 * 2**30
FILE_BYTES = 16 * 2**20
GRACE_SECONDS = 1.0

NO_PROCESSES = (
    "a reward may start neither processes nor threads, which would outlive it: check in Python itself, or ask a service of "
    "yours that runs them; "
)
Call = Callable[[Sequence[Completion]], Sequence[object]]


def main(functions_module: str) -> None:
    """Serve batches until the worker closes the pipe or is gone."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # from Slurm, say, to all of a job: the worker ends this process
    requests, replies = take_over_pipes()
    settings = json.loads(requests.readline())
    table = importlib.import_module(functions_module).FUNCTIONS
    # The kernel ends the process if an import hangs, even if the worker is gone.
    signal.setitimer(signal.ITIMER_REAL, START_LIMIT + GRACE_SECONDS)
    sys.path += settings["path"]
    sys.dont_write_bytecode = True  # nothing is put beside a person's files
    modules = None if settings["own"] is None else OwnModules(Path(settings["own"]), settings["texts"])
    if modules is not None and (file := settings.get("describe")):
        bound()
        described = describe(modules, file)
        texts = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in modules.texts.items()}
        reply(replies, {"described": {**described, "texts": texts}})
        return
    try:
        load(settings["functions"], modules)
    except (FunctionUnavailable, Refused) as error:
        what = "The reward function " if isinstance(error, FunctionUnavailable) else ""
        trace = "".join(traceback.format_exception(error))
        reply(replies, {"unavailable": f"{what}{error}\n{trace:.{LONGEST_TRACEBACK}}"})
        return
    signal.setitimer(signal.ITIMER_REAL, 0)
    calls = [call_of(table, function) for function in settings["functions"]]
    reply(replies, {"ready": modules.texts if modules else {}})
    owner = os.getpid()
    own = modules.folder if modules else None
    for line in requests:
        batch = json.loads(line)
        completions = [Completion(**sample) for sample in batch["samples"]]
        import_slow_libraries(settings["functions"], completions)
        reply(replies, "ready")
        for function, first, end in batch["calls"]:
            outcome = score(calls[function], completions[first:end], settings["time_limit"] * (end - first), own)
            if os.getpid() != owner:
                os._exit(0)  # the function forked, and this is its child: only the owner answers
            reply(replies, outcome)


def load(functions: Sequence[dict[str, Any]], modules: OwnModules | None) -> None:
    """Import what the configuration names; the person's own, with all that they import, within the bounds in which they were
    described. Raises FunctionUnavailable, Refused.
    """
    named = [(one["file"], one["params"]) for one in functions if one["kind"] == "python"]
    for name in [params["function"] for file, params in named if file is None]:
        try:
            load_function(name)
        except FunctionUnavailable as error:
            advice = (
                "GROUPSCOPE_REWARD_PATH names the folder that the worker looks in, beside what is installed with it"
            )
            raise FunctionUnavailable(f"{error}; {advice}") from error
    bound()
    for file, params in named:
        if file is not None and modules is not None:
            try:
                require_reward(modules.load(file), params["function"].partition(":")[2])
            except Refused:
                raise
            except BaseException as error:  # somebody's module: its import may end in anything
                raise Refused(f"{file} cannot be imported: {summary(error, modules.folder)}") from error
        require_settings(params["function"], params["arguments"])
    if modules is not None:
        modules.close()
    forbid_processes()


def call_of(table: Mapping[str, Callable[..., object]], function: dict[str, Any]) -> Call:
    """What scores the completions of one call."""
    params = function["params"]
    if function["kind"] == "python":
        return partial(python_scores, function=params["function"], arguments=params["arguments"])
    one = partial(table[function["kind"]], **params)
    return lambda completions: [one(completion) for completion in completions]


def take_over_pipes() -> tuple[BinaryIO, int]:
    """Where requests come from and replies go to. What functions print goes to stderr, what they read is empty."""
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.dup(1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    faulthandler.enable()
    return requests, replies


def bound() -> None:
    """Bound memory and file sizes."""
    _limit(resource.RLIMIT_AS, MEMORY_BYTES)
    _limit(resource.RLIMIT_FSIZE, FILE_BYTES)
    _limit(resource.RLIMIT_CORE, 0)


def forbid_processes() -> None:
    """Let nothing be started any more, unless the user is root, whom no such limit binds. After the imports: NumPy's starts threads."""
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
    exact = [one for one in completions if one.verifier.get("kind") == "exact" and one.answer is not None]
    references = [text for one in exact for text in one.verifier.get("accepted", [one.answer or ""])]
    if "symbolic" in matches or ("task" in matches and "symbolic" in map(match_of, references)):
        importlib.import_module("worker.rewards.symbolic")
    if "task" in matches and any(completion.verifier.get("kind") == "reasoning_gym" for completion in completions):
        importlib.import_module("worker.rewards.gym")


def score(
    call: Call, completions: Sequence[Completion], time_limit: float, own: Path | None
) -> list[dict[str, object]]:
    """One call's outcomes, or one for all of its completions if it failed. The kernel ends the process a little after the time limit, even if the worker is gone."""
    _limit(resource.RLIMIT_CPU, math.ceil(time.process_time() + time_limit + GRACE_SECONDS))
    signal.setitimer(signal.ITIMER_REAL, time_limit + GRACE_SECONDS)
    outcome: dict[str, object]
    try:
        return [outcome_of(value) for value in call(completions)]
    except BrokenContract as broken:
        outcome = {"breach": {"expected": broken.expected, "got": broken.got}}
    except BaseException as error:  # noqa: BLE001  # the process boundary: SystemExit and MemoryError are outcomes too
        started = NO_PROCESSES if _is_refused_start(error) else ""
        outcome = {"error": f"reward_error: {started}{error_text(error, own)}{lost_whole(len(completions))}"}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return [outcome]  # of all of them


def _is_refused_start(error: BaseException) -> bool:
    """Whether `forbid_processes` is why it was raised: by fork, or by what starts a thread."""
    used = (name for frame, _ in traceback.walk_tb(error.__traceback__) for name in frame.f_code.co_names)
    by_fork = isinstance(error, BlockingIOError) and any("fork" in name for name in used)
    return by_fork or (isinstance(error, RuntimeError) and "start new thread" in str(error))


def lost_whole(count: int) -> str:
    """What each completion's error says if a call for several failed: nothing if it was for one."""
    return f"\nThe call was for all {count} completions of the prompt." if count > 1 else ""


def outcome_of(value: object) -> dict[str, object]:
    """A number is a value; NaN, infinity, None and what no loss could hold leave unscored; all else raises BrokenContract."""
    if value is None:
        return {"error": "reward_value: it returned None, which leaves the completion unscored"}
    if isinstance(value, Unclear):
        return {"error": f"reward_value: {value.reason}, which leaves the completion unscored"}
    if getattr(value, "ndim", None) == 0:  # a number of NumPy or torch
        value = value.item()  # type: ignore[attr-defined]
    if not isinstance(value, numbers.Real):
        raise BrokenContract("one number for each completion", f"a value of type {kind_and_length(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not abs(number) <= LARGEST_REWARD:
        return {"error": f"reward_value: it returned {number}; a reward is a finite number up to {LARGEST_REWARD:g}"}
    return {"value": number}


def reply(replies: int, message: object) -> None:
    """Write one line, whole."""
    line = memoryview(json.dumps(message).encode() + b"\n")
    while line:
        line = line[os.write(replies, line) :]


if __name__ == "__main__":
    main(sys.argv[1])
