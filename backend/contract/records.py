"""What the backend answers: runs, metrics, groups, completions, token traces. Names are fixed: others build on them."""

from datetime import datetime
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import Field

from backend.contract.base import CleanText, Count, Frozen, Json, Record, ShortText
from backend.contract.config import RunConfig

Status = Literal["queued", "running", "paused", "finished", "failed", "stopped"]
TERMINAL: frozenset[str] = frozenset({"finished", "failed", "stopped"})
Requested = Literal["nothing", "pause", "stop"]
GroupState = Literal["live", "zero_variance", "unscored", "filtered"]
FinishReason = Literal["stop", "length"]
T = TypeVar("T")


class Page(Record, Generic[T]):
    """One page of a list; `next_cursor` is None on the last."""

    items: list[T]
    next_cursor: str | None = None


class Progress(Record):
    """How far a run is. Within a step, `phase` and the completions done so far say that it is alive."""

    step: Count = 0
    total_steps: Count = 0
    eta_seconds: float | None = None
    phase: ShortText | None = None
    done: Count | None = None
    total: Count | None = None


class RunError(Record):
    """Why a run failed, in words for the person who started it; `details` holds a traceback where there is one."""

    code: ShortText
    message: CleanText
    details: CleanText | None = None


class Run(Record):
    """A run as lists and pages show it. `config` is the stored one, read as it is."""

    id: int
    name: str
    kind: str
    status: Status
    requested: Requested = "nothing"
    priority: int = 0
    queue_position: int | None = None
    config: dict[str, Json]
    progress: Progress
    attempt: int
    failures: int
    worker: str | None = None
    device: str | None = None
    error: RunError | None = None
    tags: list[str] = []
    notes: str = ""
    parent_id: int | None = None
    sweep_id: int | None = None
    summary: dict[str, float | None] = {}  # the latest value of each metric, and <name>:first for eval/… metrics
    reward_sparkline: list[float | None] = []  # at most 40 points of `reward`
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None


class RunCreate(Frozen):
    """The body of POST /runs."""

    name: ShortText | None = None
    config: RunConfig
    tags: Annotated[list[Annotated[CleanText, Field(min_length=1, max_length=50)]], Field(max_length=20)] = []
    notes: Annotated[CleanText, Field(max_length=20_000)] = ""
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    parent_id: Annotated[int, Field(ge=1, le=2**63 - 1)] | None = None


class SweepCreate(Frozen):
    """The body of POST /sweeps: all of these runs are created, in this order, or none."""

    name: Annotated[CleanText, Field(min_length=1, max_length=200)]
    runs: Annotated[list[RunCreate], Field(min_length=1, max_length=200)]


class SweepSummary(Record):
    """A sweep in a list: how many of its runs are in which state. `total` counts deleted runs too."""

    id: int
    name: str
    total: int
    statuses: dict[Status, int] = {}
    created_at: datetime


class SweepRun(Record):
    """A run as its sweep shows it."""

    id: int
    name: str
    status: Status
    progress: Progress


class Sweep(SweepSummary):
    """A sweep with its runs, in the order of their creation; those deleted since are missing."""

    runs: list[SweepRun]


class RunUpdate(Frozen):
    """The body of PATCH /runs/{id}; what is left out stays."""

    name: ShortText | None = None
    tags: Annotated[list[Annotated[CleanText, Field(min_length=1, max_length=50)]], Field(max_length=20)] | None = None
    notes: Annotated[CleanText, Field(max_length=20_000)] | None = None
    priority: Annotated[int, Field(ge=-1000, le=1000)] | None = None


class RunClone(Frozen):
    """The body of POST /runs/{id}/clone: dotted paths into the configuration, and their new values."""

    name: ShortText | None = None
    overrides: dict[Annotated[str, Field(max_length=200)], Json] = {}


class Series(Record):
    """One metric over steps; `value` is None where it was not finite."""

    step: list[int]
    value: list[float | None]


class Metrics(Record):
    """Metrics of one run."""

    run_id: int
    series: dict[str, Series]


class RewardScore(Record):
    """One reward component of one completion. `raw` is None where the function could not score it: see `error`."""

    name: ShortText
    raw: float | None
    weight: float
    error: CleanText | None = None


class CompletionData(Record):
    """One sampled completion. Sums and means run over its tokens, in nats; None where they were not computed."""

    index: Count
    text: CleanText
    token_count: Count
    finish_reason: FinishReason
    rewards: list[RewardScore] = []
    reward: float | None = None
    advantage: float | None = None
    logprob_sum: float | None = None
    logprob_sum_after: float | None = None  # after the update, where telemetry asked for it
    kl_mean: float | None = None
    entropy_mean: float | None = None
    ratio_mean: float | None = None
    clipped_share: float | None = None


class GroupData(Record):
    """One prompt and its G completions at one step. `reward_mean` and `reward_std` are those the estimator used."""

    index: Count
    prompt_id: ShortText
    prompt_text: CleanText  # rendered: what the model read
    prompt: CleanText = ""  # the question, as the task words it
    answer: CleanText | None = None
    state: GroupState
    scored: Count
    truncated: Count = 0
    reward_mean: float | None = None
    reward_std: float | None = None


class GroupReport(GroupData):
    """A group as the worker reports it."""

    completions: list[CompletionData]


class CompletionRecord(CompletionData):
    """A stored completion."""

    id: int
    has_trace: bool = False


class GroupSummary(GroupData):
    """A group in a list: rewards, advantages and the ends of its best and worst texts instead of whole completions."""

    id: int
    run_id: int
    attempt: int
    step: int
    rewards: list[float | None]
    advantages: list[float | None]
    best: str | None = None
    worst: str | None = None


class Group(GroupData):
    """A group with its completions."""

    id: int
    run_id: int
    attempt: int
    step: int
    completions: list[CompletionRecord]


class TokenTrace(Record):
    """The tokens of one completion; every list is as long as `token_ids`, or None where it was not computed."""

    completion_id: int
    token_ids: list[int]
    texts: list[str]
    sampling_logprob: list[float | None] | None = None
    old_logprob: list[float | None] | None = None
    logprob: list[float | None] | None = None
    logprob_after: list[float | None] | None = None
    reference_logprob: list[float | None] | None = None
    entropy: list[float | None] | None = None
    ratio: list[float | None] | None = None
    clipped: list[bool] | None = None
    kl: list[float | None] | None = None
    advantage: list[float | None] | None = None  # one number throughout, but for a critic's
    value: list[float | None] | None = None  # what the critic expected before the token
    returns: list[float | None] | None = None  # what it should have expected


class Checkpoint(Record):
    """A saved state; `step` steps are done."""

    run_id: int
    attempt: int
    step: int
    store: str
    path: str
    size_bytes: int
    created_at: datetime


class LogRecord(Record):
    """One line of a run's log."""

    id: int
    attempt: int
    level: str
    message: str
    created_at: datetime


class StepSummary(Record):
    """How many groups of a step are in which state."""

    step: int
    states: dict[str, int]


class Upload(Record):
    """An uploaded JSONL file."""

    id: int
    name: str
    rows: int
    columns: list[str]
    size_bytes: int
    sha256: str
    created_at: datetime


class UploadPreview(Record):
    """The first rows of an upload."""

    upload: Upload
    rows: list[dict[str, Json]]


class Worker(Record):
    """A worker as its last claim or heartbeat described it."""

    name: str
    device: str
    memory_bytes: int | None = None
    versions: dict[str, str] = {}
    judges: list[str] = []
    reward_functions: list[str] = []
    run_id: int | None = None
    run_name: str | None = None
    seconds_since_seen: float
    alive: bool


class Message(Record):
    """What preflight has to say about one field; `fix` maps dotted paths to values that would settle it."""

    level: Literal["error", "warning", "info"]
    field: str | None = None
    text: str
    fix: dict[str, Json] | None = None


class MemoryEstimate(Record):
    """Bytes, by part."""

    total_bytes: int
    available_bytes: int | None = None
    parts: dict[str, int]


class TimeEstimate(Record):
    """Seconds, and what they rest on."""

    seconds_per_step: float
    total_seconds: float
    basis: str


class DeadForecast(Record):
    """The share of groups without signal, p^G + (1 − p)^G."""

    group_size: int
    share: float


class Preflight(Record):
    """What a configuration would do, before anything is loaded."""

    ok: bool
    messages: list[Message] = []
    completions_per_step: int | None = None
    total_completions: int | None = None
    training_pairs: int | None = None  # of a run on preference pairs: about so many there are
    trained_pairs: int | None = None  # and so many are trained on, those seen again counted again
    memory: MemoryEstimate | None = None
    time: TimeEstimate | None = None
    success_rate: float | None = None
    success_basis: str | None = None
    dead_groups: list[DeadForecast] = []


class RecipeCard(Record):
    """A named starting point: nothing but choices along the axes, with their source."""

    id: str
    title: str
    sentence: str
    when: str
    source: str
    formula: str  # LaTeX
    family: str = ""
    config: dict[str, Json]


class ModelCard(Record):
    """A model that can be named by its source."""

    source: str
    title: str
    sentence: str


class Catalog(Record):
    """Everything a form needs."""

    version: str
    recipes: list[RecipeCard]
    models: list[ModelCard]
    schemas: dict[str, dict[str, Json]]  # JSON Schema by run kind
