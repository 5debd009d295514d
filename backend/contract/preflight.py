"""What a configuration would do, said before anything is loaded."""

from typing import Literal

from backend.contract.base import Json, Record

NOT_LOOKED = "not checked against the model yet"
"""Of the prompts: a free worker that has the model looks at them now; the next answer may say what it found."""


class Message(Record):
    """What preflight has to say about one field; `fix` maps dotted paths to values that would settle it.

    `intended`: the recipe itself is set so, and nothing is to be mended. `waits`: until it is settled no worker takes the run.
    """

    level: Literal["error", "warning", "info"]
    field: str | None = None
    text: str
    fix: dict[str, Json] | None = None
    intended: bool = False
    waits: bool = False


class MemoryEstimate(Record):
    """Bytes, by part; `advice` says which part is the largest and what would lower it."""

    total_bytes: int  # on GPUs of each card
    available_bytes: int | None = None
    processes: int = 1  # that share the work
    each_bytes: int | None = None  # of each process, if there are several
    parts: dict[str, int]
    advice: str = ""


class TimeEstimate(Record):
    """Seconds, by part where that is known, and what they rest on; `measured` by earlier steps, or counted from the shapes.

    Between `low_seconds` and `high_seconds` lay nine of ten measured steps, or what was counted may be off so far; None of few steps.
    """

    seconds_per_step: float
    low_seconds: float | None = None
    high_seconds: float | None = None
    total_seconds: float
    basis: str
    measured: bool = True
    with_evaluations: bool = True  # whether the total has the evaluations, too, of a run that makes any
    parts: dict[str, float] = {}
    advice: str = ""


def dead_share_at_rate(success_rate: float, group_size: int) -> float:
    """p^G + (1 − p)^G: the share of dead groups if every prompt had this one success rate."""
    return float(success_rate**group_size + (1 - success_rate) ** group_size)


class DeadForecast(Record):
    """The share of dead groups that a group size gives, from 0 to 1."""

    group_size: int
    share: float


class Preflight(Record):
    """What a configuration would do, before anything is loaded."""

    ok: bool
    messages: list[Message] = []
    completions_per_step: int | None = None
    total_completions: int | None = None
    # of a run on preference pairs: about how many there are, without a success rate at most
    training_pairs: int | None = None
    trained_pairs: int | None = None  # how many are trained on; a pair that is seen twice counts twice
    memory: MemoryEstimate | None = None
    time: TimeEstimate | None = None
    time_unknown: str = ""  # why there is no time
    # None until something like this run was sampled; no dead groups are forecast then
    success_rate: float | None = None
    success_basis: str | None = None
    dead_groups: list[DeadForecast] = []
