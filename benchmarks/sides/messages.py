"""What the driver and its two sides say to each other, one JSON object a line."""

from typing import Literal

from floor.shape import Shape
from pydantic import BaseModel

from backend.contract.base import Json

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
    models: str  # a folder: converted models, and those that `local:` names
    rows: str = ""  # JSONL: the rows of a task of the kind `dataset`
    threads: int | None = 2  # None: torch's own choice
    accelerator: bool = False
    lengths: Lengths = "model"
    fast: bool = True  # Groupscope's: with its fast paths
    batch: int = 8  # TRL's per_device_train_batch_size
    model: str = ""  # TRL's: what from_pretrained opens
    prompts: list[Prompt] = []  # TRL's: in the order of the run


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
