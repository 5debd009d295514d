"""Generates Reasoning Gym items as a program of its own: some generators depend on how the interpreter hashes strings.

Reads `{"dataset", "params", "sizes"}` as JSON from stdin, where `sizes` has the number of items for each seed, and
writes `{"items": [[{"question", "answer", "entry"}, …], …]}`, a list for each seed, or `{"code", "error"}`.
"""

import dataclasses
import difflib
import json
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout

import numpy as np
from reasoning_gym.factory import DATASETS, create_dataset, get_score_answer_fn

Params = Mapping[str, bool | int | float | str]


class Refused(Exception):
    """The request cannot be met; `code` is the task error's."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def main() -> None:
    """Answer one request."""
    request = json.load(sys.stdin)
    np.set_printoptions(legacy="1.25")  # a numpy scalar in an entry is written as a plain literal
    answer: dict[str, object]
    try:
        with redirect_stdout(sys.stderr):
            check(request["dataset"], request["params"])
            answer = {
                "items": [generate(request["dataset"], request["params"], *pair) for pair in request["sizes"].items()]
            }
    except Refused as error:
        answer = {"code": error.code, "error": str(error)}
    except Exception as error:  # noqa: BLE001  # the process boundary: whatever a generator does, the run says it
        answer = {"code": "generator_failed", "error": f"{type(error).__name__}: {error}"}
    json.dump(answer, sys.stdout)


def check(dataset: str, params: Params) -> None:
    """Raise Refused for a generator or a setting that does not exist."""
    if dataset not in DATASETS:
        near = difflib.get_close_matches(dataset, DATASETS, n=3)
        hint = f"; near it: {', '.join(near)}" if near else ""
        raise Refused("task_unknown", f"reasoning_gym has no data set {dataset}{hint}")
    settings = {field.name for field in dataclasses.fields(DATASETS[dataset][1])} - {"seed", "size"}
    unknown = [name for name in params if name not in settings]
    if unknown:
        raise Refused("task_settings", f"{dataset} has no setting {unknown[0]}; it has {', '.join(sorted(settings))}")


def generate(dataset: str, params: Params, seed: str, size: int) -> list[dict[str, str | None]]:
    """Items of one seed. The entry is a Python literal: JSON would turn tuples into lists, which some verifiers refuse."""
    try:
        source = create_dataset(dataset, seed=int(seed), size=size, **params)
    except (AssertionError, TypeError, ValueError) as error:
        raise Refused("task_settings", f"{dataset} refuses its settings: {error}") from error
    entries = [source[index] for index in range(size)]
    score = get_score_answer_fn(dataset)
    score(entries[0]["answer"], entries[0])  # a verifier that fails on its own reference fails here
    return [{"question": str(entry["question"]), "answer": entry["answer"], "entry": repr(entry)} for entry in entries]


if __name__ == "__main__":
    main()
