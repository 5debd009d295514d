"""What the driver and its two sides say to each other, one JSON object a line, and a side's end of that pipe."""

import os
import sys
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from pydantic import BaseModel

from backend.contract.base import Json
from sides.floor import SECONDS, Shape

Message = TypeVar("Message", bound=BaseModel)
Lengths = Literal["model", "fixed", "mixed"]
"""When completions end: as the model says, never before the limit, or about one in 256 tokens, whatever the model says."""


class Prompt(BaseModel):
    """One prompt of the run, as TRL's data set holds it, and the token ids that the model must read."""

    prompt: str | list[dict[str, str]]
    ids: list[int]
    answer: str | None
    verifier: dict[str, Json]


class Job(BaseModel):
    """What a side is to do; its first line."""

    config: dict[str, Json]
    models: str = ""  # a folder: converted models, and those that `local:` names
    rows: str = ""  # JSONL: the rows of a task of the kind `dataset`
    threads: int | None = 2  # None: torch's own choice
    accelerator: bool = False
    lengths: Lengths = "model"
    fast: bool = True  # Groupscope's: with its fast paths
    slower: float = 0.0  # Groupscope's: this share of an update's seconds is waited after it
    batch: int = 8  # TRL's per_device_train_batch_size
    model: str = ""  # TRL's: what from_pretrained opens
    prompts: list[Prompt] = []  # TRL's: in the order of the run
    watch: str = ""  # the watched side's: the backend that `groupscope.watch` tells of it
    block: int = 10  # the same side's: steps at a time


class Ready(BaseModel):
    """A side is prepared to train."""

    versions: dict[str, str]
    threads: int
    omp_wait_policy: str  # when OpenMP was loaded
    model: str = ""
    prompts: list[Prompt] = []
    shape: Shape | None = None


class Command(BaseModel):
    """What to do next: train a step, or measure the rates of this process's matrix products."""

    do: Literal["step", "rates"]
    at_least: float = SECONDS  # that each rate is measured


class Trace(BaseModel):
    """Of every completion of a step: its tokens, and their log-probs when they were drawn and in the training pass."""

    token_ids: list[list[int]]
    sampling_logprob: list[list[float]]
    old_logprob: list[list[float]]


class Trained(BaseModel):
    """A side trained a step."""

    lengths: list[int]  # sampled tokens of each completion
    metrics: dict[str, float | None]
    peak_memory: int | None  # bytes, of the process so far
    attention: str = ""  # of the library that sampled
    trace: Trace | None = None


@dataclass(frozen=True)
class Step:
    """A step that a side trained, and its seconds: from the start signal until it was done and reported."""

    trained: Trained
    seconds: float


class Pipe:
    """Takes stdout for itself: what libraries print there goes to stderr, and so into the side's log."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def tell(self, message: BaseModel) -> None:
        """Answer the driver."""
        self._out.write(message.model_dump_json() + "\n")
        self._out.flush()

    def asked(self, kind: type[Message]) -> Message:
        """What the driver says next. Where the driver has gone the process ends at once: there is nothing to save."""
        line = sys.stdin.readline()
        if not line:
            os._exit(0)
        return kind.model_validate_json(line)


def peak_memory() -> int | None:
    """The most bytes that this process has held: of a GPU, if it used one, what torch reserved; else what was resident.

    None if the system does not say (Linux does).
    """
    if torch.cuda.is_available() and torch.cuda.max_memory_reserved():
        return int(torch.cuda.max_memory_reserved())
    try:
        with open("/proc/self/status") as status:
            return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    except OSError:
        return None
