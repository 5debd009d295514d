"""What a worker and the backend say to each other. Public: anything that produces groups may speak it.

claim -> start -> (heartbeat | report | checkpoint)* -> finish | fail. Who trains a run that this program does not, sends a Recording in
place of the claim. Every message after the claim carries `attempt`, and the
claim's secret in the header `Groupscope-Claim`; a stale one, or one of another worker, is answered 409 `lease_lost` and changes nothing.
"""

from typing import Annotated, Literal, get_args

from pydantic import Field

from backend.contract.base import CleanText, Count, Json, Record, ShortText, cut
from backend.contract.config import Kind
from backend.contract.groups import GroupReport
from backend.contract.pairs import RecordedPairs
from backend.contract.recorded import RecordedConfig
from backend.contract.records import (
    MOST_REWARD_FILES,
    Offers,
    Progress,
    Ranks,
    Requested,
    RewardFile,
    RewardText,
    RunError,
    Versions,
)
from backend.contract.replay import Replayed, ReplayedRun

PROTOCOL = 2  # 1 had no secrets
ASK_AGAIN_SECONDS = 0.5
SECRET_HEADER = "Groupscope-Claim"  # noqa: S105 — the name of the header
ENDING_HEADER = "Groupscope-Ending"
"""`true` on what only the end of the attempt waits behind: a backend whose disk is full stores it with its reserve."""
Attempt = Annotated[int, Field(ge=1, le=2**63 - 1)]
EVALUATION = "eval/"  # what names of an evaluation's metrics begin with
MOST_METRICS = 1000  # of a report
MOST_TOGETHER = 64  # reports in one request
REPORT_BYTES = 64 * 2**20  # the largest body of a message; a report that would be larger is sent in parts
Outcome = Literal["finished", "stopped", "paused", "released"]


class WorkerInfo(Offers):
    """Who asks for work, and what it has."""

    name: Annotated[CleanText, Field(min_length=1, max_length=200)]  # unique while it lives
    store: ShortText  # where it keeps checkpoints, <absolute path>#<id>: only who reaches the same store resumes them


class ClaimRequest(Record):
    """POST /worker/claim. `kinds` limits what is wanted: a busy worker asks for `sample` only, between two steps.

    Asked again with the same `key`, after an answer that got lost, a worker is given the same run once more.
    """

    worker: WorkerInfo
    key: Annotated[str, Field(min_length=16, max_length=64)] | None = None  # drawn for each claim; Client fills it in
    kinds: list[Kind] = list(get_args(Kind))
    protocol: Annotated[int, Field(ge=1, le=1_000)] = 1  # what the worker speaks; Client fills it in


class Recording(Record):
    """POST /worker/recordings: a run that the sender trains itself, stored and claimed in one call, or the next attempt of `run_id`.

    Sent again with the same `key` it means the same attempt, which gets a new secret.
    """

    key: Annotated[str, Field(min_length=16, max_length=64)]
    # what the page names as its worker: a host and a process
    worker: Annotated[CleanText, Field(min_length=1, max_length=200)]
    config: RecordedConfig
    name: Annotated[ShortText, Field(min_length=1)]
    notes: Annotated[CleanText, Field(max_length=20_000)] = ""
    tags: Annotated[list[Annotated[CleanText, Field(min_length=1, max_length=50)]], Field(max_length=20)] = []
    run_id: Annotated[int, Field(ge=1, le=2**63 - 1)] | None = None
    protocol: Annotated[int, Field(ge=1, le=1_000)] = 1  # Client fills it in


class CheckpointRef(Record):
    """Where a checkpoint lies."""

    run_id: int
    step: int
    store: str
    path: str
    sha256: str


class Claim(Record):
    """A claimed run. The lease runs `lease_seconds` from now; each heartbeat renews it."""

    run_id: int
    name: str
    attempt: Attempt
    secret: str  # shown with every later message, and kept where a message waits to be sent
    config: dict[str, Json]
    lease_seconds: float
    resume: CheckpointRef | None = None  # this run's newest live checkpoint in the worker's store
    earlier: list[CheckpointRef] = []  # those before it, the newest first, should that one be damaged
    source_checkpoint: CheckpointRef | None = None  # what model.source = run:<id>@<step> names
    reward_checkpoints: dict[str, CheckpointRef] = {}  # by source, what the rewards of kind reward_model name
    # of the Hub model from which an earlier attempt began: this one begins from the same
    model_commit: str | None = None
    # paths of this run's checkpoints: the worker removes all others; None: it removes nothing
    kept: list[str] | None = None
    replayed: ReplayedRun | None = None  # of a replay: `resume` is then a checkpoint of that run
    # the run goes on from here, by another run's checkpoint until it has its own: it never begins at 0
    forked_at: int | None = None
    trunk_config: dict[str, Json] | None = None  # of the run whose checkpoint that is, until this one has its own
    # how the steps from there to `forked_at` were trained, which are first done again exactly
    repeats: dict[str, Json] | None = None
    scored_by: dict[str, str] = {}  # file of rewards -> sha256 in the attempts before: a changed one ends this attempt


class LookWish(Record):
    """A look at the prompts of a configuration, which a form would like: not a run, and nobody waits for it."""

    key: ShortText
    config: dict[str, Json]


class PromptsLook(Record):
    """What a worker found in the prompts of a configuration, rendered and counted as the model reads them."""

    prompts: Count = 0
    longest: Count = 0  # in tokens
    unfit: Count = 0  # that cannot be asked
    problem: Annotated[CleanText, cut(5_000)] = ""  # which, why, and what to do; or why nothing could be looked at
    remarks: Annotated[list[Annotated[CleanText, cut(1_000)]], Field(max_length=20)] = []


class LookFound(Record):
    """POST /worker/looks: the answer to a wish."""

    key: ShortText
    look: PromptsLook


class ClaimReply(Record):
    """`claim` is None when nothing waits that this worker could run; it looks at prompts, or asks again after `ask_again_seconds`."""

    claim: Claim | None = None
    look: LookWish | None = None
    ask_again_seconds: float = ASK_AGAIN_SECONDS  # more where many ask, so that all of them together are served


class Start(Record):
    """POST …/start: where the attempt begins."""

    attempt: Attempt
    from_step: Count
    device: ShortText
    versions: Versions = {}
    model_commit: Annotated[str, Field(pattern="^[0-9a-f]{40}$")] | None = None  # of a Hub model, with its tokenizer
    reward_texts: Annotated[list[RewardText], Field(max_length=MOST_REWARD_FILES)] = []  # what scores the attempt


class Heartbeat(Record):
    """POST …/heartbeat: still alive, and this far."""

    attempt: Attempt
    progress: Progress | None = None
    ranks: Ranks | None = None  # None: one process trains the run
    worker: ShortText
    reward_files: Annotated[list[RewardFile], Field(max_length=MOST_REWARD_FILES)] | None = None  # None: as before


class HeartbeatReply(Record):
    """What the person asked for meanwhile; it takes effect at the next step boundary."""

    requested: Requested
    stop_at_once: bool = False  # stop was asked for twice: the attempt may end in the middle of a step
    lease_seconds: float
    samples_waiting: bool = False  # a busy worker claims and serves them between two steps


class LogLine(Record):
    """One line for the run's log."""

    level: Literal["info", "warning", "error"] = "info"
    message: Annotated[CleanText, cut(20_000)]


class TraceFile(Record):
    """The token traces of one step: a zstd-compressed Parquet file, one row per traced completion.

    Columns: `group` and `completion` (int32, their indices), then the lists of TokenTrace by name, `text_offsets` (int32, one
    more than there are tokens: token t is text[offsets[t]:offsets[t + 1]] of the UTF-8 bytes of `text`) and `text` (binary).
    """

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    data: Annotated[str, Field(max_length=48 * 2**20)]  # base64
    rows: Count


class TraceTooLarge(Exception):
    """More traces than one report can carry."""


class Report(Record):
    """POST …/report: what one step (or a moment between steps) brought. Numbered; sending one twice is harmless.

    A training step s is reported once, with its groups if it has any, after its update. If that would be larger than REPORT_BYTES,
    some of the groups come before it in reports with `part`, which hold nothing else. An evaluation after k steps is
    reported with step k, no groups, and metrics under `eval/` alone. A report without a step carries log lines only. A metric
    that was not finite is None.
    """

    attempt: Attempt
    seq: Count
    step: Count | None = None
    metrics: Annotated[dict[ShortText, float | None], Field(max_length=MOST_METRICS)] = {}
    groups: Annotated[list[GroupReport], Field(max_length=100_000)] = []
    pairs: RecordedPairs = []  # the first of those that the step was trained on
    part: bool = False  # the step's own report, with its other groups, is still to come
    late: bool = False  # metrics alone, of a step that a recorded run has reported; those that it has stay as they are
    trace: TraceFile | None = None
    replayed: Replayed | None = None  # of the step that a replay explains, with its groups
    logs: Annotated[list[LogLine], Field(max_length=1000)] = []
    seconds: float | None = None  # trained so far in all attempts, by monotonic clocks

    @property
    def trained_step(self) -> int | None:
        """The step whose training it completes; None for a part, late metrics, an evaluation (of a recorded run with its groups), or log lines."""
        if self.part or self.late:
            return None
        trained = any(group.state != "probe" for group in self.groups) or any(
            not name.startswith(EVALUATION) for name in self.metrics
        )
        return self.step if trained else None


class Reports(Record):
    """POST …/reports: several reports of one attempt, the JSON of each on a line; they are stored together, or none is.

    Each may as well come by itself, before or after: it is the same report. A `part` and `late` metrics come by themselves only.
    """

    attempt: Attempt
    reports: Annotated[list[Report], Field(min_length=1, max_length=MOST_TOGETHER)]


class CheckpointReport(Record):
    """POST …/checkpoint: checkpoint `step` exists, whole, in `store`; the reports below it were sent before."""

    attempt: Attempt
    step: Count
    store: ShortText
    path: ShortText  # relative to the store, below run-<id>/ of this very run
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]  # of its manifest
    size_bytes: Count


class Finish(Record):
    """POST …/finish. `paused`, `stopped`: as asked. `released`: the worker shuts down gracefully; the run queues again.

    `error`: what the run's page should say, if the attempt did not end by itself.
    """

    attempt: Attempt
    outcome: Outcome
    error: RunError | None = None


class Fail(Record):
    """POST …/fail. A retryable failure (a crash, not a mistake in the configuration) queues again within the budget."""

    attempt: Attempt
    error: RunError
    retryable: bool = False


Sent = Start | Report | CheckpointReport | Finish | Fail
"""What a worker sends in order, once each, however long the backend is away."""


class Accepted(Record):
    """The answer to start, report, checkpoint, finish and fail; `duplicate` when it had been stored before."""

    duplicate: bool = False
    kept: list[str] | None = None  # to a checkpoint: as in Claim, for those up to this one
