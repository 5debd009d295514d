"""What the backend answers about runs, and what is asked for them. Names are fixed: others build on them."""

from datetime import datetime
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import Field

from backend.contract.base import CleanText, Count, Frozen, Json, Record, ShortText, cut
from backend.contract.config import LOOKS, RECORDED, RunConfig
from backend.contract.model_shape import ModelShape
from backend.contract.reward import Argument, Unit
from backend.contract.task import Column, Dataset, Name

Status = Literal["queued", "running", "paused", "finished", "failed", "stopped"]
TERMINAL: frozenset[str] = frozenset({"finished", "failed", "stopped"})
Requested = Literal["nothing", "pause", "stop", "stop_at_once"]
STOPS: frozenset[str] = frozenset({"stop", "stop_at_once"})
T = TypeVar("T")


class Page(Record, Generic[T]):
    """One page of a list; `next_cursor` is None on the last."""

    items: list[T]
    next_cursor: str | None = None


PHASES = {
    "rollout": "sampling",
    "reward": "scoring",
    "reference": "computing the reference",
    "update": "updating the weights",
    "report": "reporting",
}
"""The phases of a step in their order, each with its word for people; the metric time/<phase> is the seconds of each."""
STARTING = "starting"
"""The phase of an attempt from its claim until its worker has said what it does."""
BETWEEN_STEPS = {
    STARTING: "starting",
    "evaluation": "evaluating",
    "probes": "sampling the probes",
    "prompts": "looking at the prompts",
    "pairs": "sampling the pairs",
    "gradients": "comparing the gradients",
    "repeat": "doing steps of the trunk again",
    "checkpoint": "saving",
    "fetch": "fetching a checkpoint",
    "bucket": "waiting for the bucket",
}
"""The other phases that a worker reports, each with its word."""


class Progress(Record):
    """How far a run is. Within a step, `phase` and the completions done so far say that it is alive."""

    step: Count = 0
    total_steps: Count = 0
    eta_seconds: float | None = None
    phase: ShortText | None = None
    done: Count | None = None
    total: Count | None = None


MOST_RANKS = 64
BY_RANK = "rank/"  # what the names of a single process's metrics begin with
MOST_BY_RANK = 32  # of a run of more processes no such metrics are stored: their names would fill a report
SILENT_SECONDS = 5.0
"""A process that has not been heard for longer stands still, unless none was: each speaks every second."""
SLOWER, SLOWER_SECONDS = 1.5, 0.5
"""A process is slow that works this many times as long in a step as the median of all, and by at least this many seconds."""
RANK_STEPS, ENOUGH_RANK_STEPS = 10, 5
"""Over how many of its last steps that is taken, and from how many on: a single one is noise."""


class Rank(Record):
    """One of the processes that train a run together, as the worker that started it knows it."""

    rank: Count
    step: Count = 0
    host: ShortText | None = Field(None, description="The name of its machine.")
    pid: Count | None = Field(None, description="Its process id there.")
    phase: ShortText | None = None
    done: Count | None = None  # of its own share
    total: Count | None = None
    phase_seconds: float = Field(0.0, description="Since its phase began.")
    waits_seconds: float = Field(0.0, description="For which it has been waiting for the others now; 0: it works.")
    silent_seconds: float = Field(0.0, description="Since its worker last heard it; it speaks every second.")
    memory_bytes: Count | None = None  # of a GPU what its tensors take, else what is resident
    peak_bytes: Count | None = None
    # Seconds in each phase of its last step without waiting for the others, and in a step: the median of its last ones, None before
    # there are enough of them.
    worked: Annotated[dict[ShortText, float], Field(max_length=32)] = {}
    step_seconds: float | None = None
    slow: Literal["silent", "slower"] | None = None


class Ranks(Record):
    """The processes that train a run, by number; of very many only those that hold the others up most."""

    count: Count = 0  # all of them; 0 if the run is not trained by several at this moment
    items: Annotated[list[Rank], Field(max_length=MOST_RANKS)] = []
    memory_bytes: Count | None = None  # of all together
    step_seconds: float | None = None  # of work in a step: the median of all processes
    age_seconds: float = 0.0  # since the worker said so


class RunError(Record):
    """Why a run failed, in words for the person who started it; `details` holds a traceback where there is one."""

    code: ShortText
    message: Annotated[CleanText, cut(20_000)]
    details: Annotated[CleanText, cut(200_000)] | None = None


REWARD_STEPS = 10
"""The last steps over which a run's reward is averaged where one number stands for it. That of a single step is mostly luck."""


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
    model_commit: str | None = None  # of a Hub model, weights and tokenizer; other models have none
    error: RunError | None = None
    tags: list[str] = []
    notes: str = ""
    parent_id: int | None = None
    forked_at: int | None = None  # it went on from its parent's state after this step; None: it began by itself
    sweep_id: int | None = None
    summary: dict[str, float | None] = {}  # the latest of each metric; <name>:first of what was evaluated again
    reward_sparkline: list[float | None] = []  # at most 40 points of `reward`
    recent_reward: float | None = None  # its mean over the last REWARD_STEPS steps that logged it
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    trained_seconds: float | None = None  # over all attempts, without queue and pauses; None before a report

    @property
    def recorded(self) -> bool:
        """Whether another program trains it, and only tells of it."""
        return self.kind == RECORDED

    @property
    def by_groups(self) -> bool:
        """Whether its steps train on groups."""
        return self.recorded or self.kind == "grpo"

    @property
    def from_form(self) -> bool:
        """Whether the form can make one like it."""
        return not self.recorded and self.kind not in LOOKS


class RunCreate(Frozen):
    """The body of POST /runs."""

    name: ShortText | None = None
    config: RunConfig
    tags: Annotated[list[Annotated[CleanText, Field(min_length=1, max_length=50)]], Field(max_length=20)] = []
    notes: Annotated[CleanText, Field(max_length=20_000)] = ""
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    parent_id: Annotated[int, Field(ge=1, le=2**63 - 1)] | None = None
    fork_at: Annotated[int, Field(ge=0, le=2**63 - 1)] | None = None  # a step of the parent, after which it goes on


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
    """The body of PATCH /runs/{id}; a field that is not sent stays as it is."""

    name: ShortText | None = None
    tags: Annotated[list[Annotated[CleanText, Field(min_length=1, max_length=50)]], Field(max_length=20)] | None = None
    notes: Annotated[CleanText, Field(max_length=20_000)] | None = None
    priority: Annotated[int, Field(ge=-1000, le=1000)] | None = None


class RunClone(Frozen):
    """The body of POST /runs/{id}/clone: dotted paths into the configuration, and their new values."""

    name: ShortText | None = None
    overrides: dict[Annotated[str, Field(max_length=200)], Json] = {}


class RunFork(RunClone):
    """The body of POST /runs/{id}/fork: after how many of its steps the fork goes on by itself, and what is other from there."""

    step: Annotated[int, Field(ge=0, le=2**63 - 1)]


class Stretches(Record):
    """What each point of a thinned series stands for: the steps from `start` to the point's own, `width` at most, aligned at step 0.

    `finite` of its values are finite, `missing` are not; `low` and `high` are the extremes, with their steps.
    """

    width: int
    start: list[int]
    finite: list[int]
    missing: list[int]
    low_step: list[int | None]
    low: list[float | None]
    high_step: list[int | None]
    high: list[float | None]


class Series(Record):
    """One metric over steps; `value` is None where it was not finite.

    Where it is thinned, a point is a stretch of steps: `step` is the last one logged, `value` the mean of the finite values.
    """

    step: list[int]
    value: list[float | None]
    stretches: Stretches | None = None  # None: each point is one value


class Metrics(Record):
    """Metrics of one run."""

    run_id: int
    series: dict[str, Series]


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


class RewardText(Record):
    """A file of a worker's folder of rewards as it scored a run, from the beginning of an attempt on."""

    name: ShortText
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    text: Annotated[CleanText, Field(max_length=2**17)]


class RewardVersion(Record):
    """The files that scored a run from an attempt on, until the next attempt of the list."""

    attempt: int
    files: list[RewardText]


class Upload(Record):
    """A person's rows. Whatever the file was, they are kept as JSON lines; `size_bytes` and `sha256` are of those."""

    id: int
    name: str
    rows: int
    columns: list[str]
    size_bytes: int
    sha256: str
    created_at: datetime
    format: str = "jsonl"
    encoding: str | None = None  # as the file was written, if that was not UTF-8
    separator: str | None = None  # of a table, in words
    duplicates: int | None = None  # rows that are equal to an earlier one; None: not counted
    empty: int | None = None  # rows without a value, which were left out
    notes: list[str] = []  # sentences: what else was left out, or how it was read


class UploadProgress(Record):
    """How many rows were read of an upload that is under way; None while no file of it is read."""

    rows: int | None


MOST_PARTS = 1000


class UploadJoin(Frozen):
    """The body of POST /uploads/join. `source_column` gets the name of the part that a row is from; it must be free in all of them."""

    source_column: Column | None = None
    name: Name
    uploads: Annotated[list[Annotated[int, Field(ge=1, le=2**63 - 1)]], Field(min_length=1, max_length=MOST_PARTS)]


class UploadKeep(Frozen):
    """The body of POST /uploads/keep: of the rows that a task reads, those with these ids, and all that it holds out."""

    name: Name
    task: Dataset
    ids: Annotated[list[ShortText], Field(min_length=1, max_length=100_000)]


class RowCounts(Record):
    """How many rows are trained on, and how many are held out for evaluations."""

    train: int
    held_out: int


class Split(RowCounts):
    """How a task's rows are divided by their prompts, and how those of each source are: of the first by name, out of `source_count`."""

    sources: dict[str, RowCounts] = {}
    source_count: int = 0


class Band(Record):
    """The upload of the rows that were kept, and what a task on it changes.

    `held_out` is the share of its prompts that holds out the same prompts as before; of the shares those remain whose sources
    have rows to train on.
    """

    upload: Upload
    held_out: float
    shares: dict[str, float]


class UploadPreview(Record):
    """The first rows of an upload.

    If its encoding was guessed, `to_check` is the first word in which another encoding would have other letters.
    """

    upload: Upload
    rows: list[dict[str, Json]]
    to_check: str | None = None


MOST_REWARD_FILES = 64


class OwnReward(Record):
    """A function in a worker's folder of rewards: `file.py:function`, what it says of itself, and its parameters with defaults."""

    function: ShortText
    help: Annotated[CleanText, cut(2_000)] = ""
    unit: Unit = "completion"
    arguments: Annotated[dict[ShortText, Argument], Field(max_length=32)] = {}
    needs: Annotated[list[ShortText], Field(max_length=256)] = []  # columns: its parameters without a default


class RewardFile(Record):
    """A file in a worker's folder of rewards, with its functions; `error` says why something in it cannot be used, and where.

    `passed_over` has the names of what cannot score, or not as it is, with the reason.
    """

    name: ShortText
    # SHA-256 of each file it imports, and its own
    texts: Annotated[dict[ShortText, ShortText], Field(max_length=MOST_REWARD_FILES)] = {}
    functions: Annotated[list[OwnReward], Field(max_length=64)] = []
    passed_over: Annotated[dict[ShortText, ShortText], Field(max_length=64)] = {}
    error: Annotated[CleanText, cut(5_000)] | None = None


MOST_MODELS = 100


class OfferedModel(Record):
    """A model that a worker can open without a download: below its model root, or in its cache of the Hub.

    `problem` says why it cannot be trained.
    """

    source: Annotated[CleanText, Field(max_length=300)]
    parameters: Count | None = None  # as its files hold them
    shape: ModelShape | None = None  # None: of an architecture whose memory nobody has counted
    problem: Annotated[CleanText, cut(500)] | None = None


Versions = Annotated[dict[ShortText, ShortText], Field(max_length=64)]


class Offers(Record):
    """What a worker says it has."""

    device: ShortText
    versions: Versions = {}  # of the libraries that a result depends on
    memory_bytes: Count | None = None
    judges: Annotated[list[ShortText], Field(max_length=64)] = []  # the judges that its operator named
    reward_functions: Annotated[list[ShortText], Field(max_length=256)] = []  # module:function, as its operator allowed
    reward_files: Annotated[list[RewardFile], Field(max_length=MOST_REWARD_FILES)] = []  # in its folder of rewards
    engines: Annotated[list[ShortText], Field(max_length=16)] = ["native"]  # what it can sample with
    processes: Annotated[int, Field(ge=1, le=1024)] = 1  # with as many it can train one run
    models: Annotated[list[OfferedModel], Field(max_length=MOST_MODELS)] = []  # besides those that come along
    missing_nodes: Annotated[list[Count], Field(max_length=1024)] = []  # by their numbers: it takes no run without them

    @property
    def own_rewards(self) -> dict[str, OwnReward]:
        """The functions in its folder of rewards, by name."""
        return {one.function: one for file in self.reward_files for one in file.functions}

    @property
    def passed_over(self) -> dict[str, str]:
        """Why what is in its folder of rewards under this name is not offered: it refuses a run that names it."""
        return {f"{file.name}:{name}": why for file in self.reward_files for name, why in file.passed_over.items()}

    @property
    def functions(self) -> set[str]:
        """All Python functions that it can score with, by name."""
        return {*self.reward_functions, *self.own_rewards}

    @property
    def on_cpu(self) -> bool:
        """Whether it computes without an accelerator, and so in float32 by default."""
        return self.device.startswith("CPU")


class Worker(Offers):
    """A worker as its last claim or heartbeat described it."""

    name: str
    store: str = ""  # where it keeps checkpoints
    run_id: int | None = None
    run_name: str | None = None
    processes_used: Count = 0  # by that run
    memory_used_bytes: Count | None = None  # by them; None where that is not known, as of a run in one process
    seconds_since_seen: float
    alive: bool


class Deletion(Record):
    """A run that was deleted and whose rows are still being removed; nothing else shows it any more."""

    run_id: int
    run_name: str
    groups_left: int


class Held(Record):
    """The time for which a worker held a run. `end` says how it ended: None while it goes on, lost where nothing more was heard."""

    worker: str
    run_id: int
    run_name: str
    since: datetime
    until: datetime  # the end, or the last that was heard
    end: Literal["finished", "failed", "stopped", "paused", "released", "lost"] | None
