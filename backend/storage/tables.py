"""The tables of runs, their records, workers and data sets, and of what people say; first what every table is made of."""

from datetime import UTC, datetime

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)

NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}
metadata = MetaData(naming_convention=NAMES)

Id = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows by itself only for INTEGER


class Utc(TypeDecorator[datetime]):
    """A moment in UTC, also where the database forgets the zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        """To UTC."""
        return value.astimezone(UTC) if value else None

    def process_result_value(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        """With its zone."""
        return value.replace(tzinfo=UTC) if value and value.tzinfo is None else value


def run_id_column(*, key: bool = False) -> Column[int]:
    """The run that a row belongs to, and goes with."""
    return Column("run_id", Id, ForeignKey("run.id", ondelete="CASCADE"), nullable=False, primary_key=key)


def attempt_column(*, key: bool = False) -> Column[int]:
    """The attempt that brought a row."""
    return Column("attempt", Id, nullable=False, primary_key=key, autoincrement=False)


def of_attempt() -> ForeignKeyConstraint:
    """A row goes with its attempt."""
    return ForeignKeyConstraint(["run_id", "attempt"], ["attempt.run_id", "attempt.attempt"], ondelete="CASCADE")


revision = Table("alembic_version", metadata, Column("version_num", String(32), primary_key=True))
"""The one row that says which revision the database has; `migrate.py` writes it."""

run = Table(
    "run",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", String(200), nullable=False),
    Column("kind", String(20), nullable=False),
    Column("status", String(20), nullable=False),
    Column("requested", String(20), nullable=False),
    Column("priority", Integer, nullable=False),
    Column("config", JSON, nullable=False),
    Column("tags", JSON, nullable=False),
    Column("notes", Text, nullable=False),
    # no foreign keys: a parent or a source may be deleted, and its number is never given again
    Column("parent_id", Id),
    Column("source_run_id", Id),  # of model.source run:<id>@<step>
    Column("upload_id", Id),  # of task.source upload:<id>
    Column("sweep_id", Id),
    Column("store", String(200)),  # only a worker that reaches this store can go on; none: any worker
    Column("idempotency_key", String(200), unique=True),
    Column("idempotency_hash", String(64)),
    Column("attempt", Id, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("worker", String(200)),
    Column("device", String(200)),
    Column("model_commit", String(40)),  # of the Hub model from which the first attempt began
    Column("lease_until", Float(53)),  # by Clock.seconds
    Column("step", Id, nullable=False),
    Column("total_steps", Id, nullable=False),
    Column("eta_seconds", Float(53)),
    Column("phase", String(200)),
    Column("phase_done", Id),
    Column("phase_total", Id),
    Column("phase_since", Float(53)),  # by Clock.seconds: when a heartbeat first reported this phase
    Column("error", JSON(none_as_null=True)),
    # what lists show of the live metrics, so that a list reads one row per run
    Column("summary", JSON, nullable=False),
    Column("sparkline", JSON, nullable=False),
    Column("created_at", Utc, nullable=False),
    Column("started_at", Utc),
    Column("finished_at", Utc),
    Column("needs", Text, nullable=False, server_default="{}"),  # runs/needs.py, of the configuration
    # attempts up to this one bind no later one to their files of rewards
    Column("rewards_changed", Id, nullable=False, server_default="0"),
    CheckConstraint("status <> 'running' OR lease_until IS NOT NULL", name="running_has_a_lease"),
    # all that a claim looks at in the queue, so that it reads no row of a run that it does not take
    Index("ix_run_queue", "status", "kind", "priority", "id", "store", "needs"),
    Index(None, "source_run_id"),
    Index(None, "sweep_id"),
    sqlite_autoincrement=True,
)

trunk = Table(
    "trunk",
    metadata,
    # of a fork: whose rows are its steps below this one, down to that of the row before, or to 0
    run_id_column(key=True),
    Column("below", Id, primary_key=True, autoincrement=False),
    Column("of_run_id", Id, nullable=False),
    Index(None, "of_run_id"),
)

sweep = Table(
    "sweep",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", String(200), nullable=False),
    Column("total", Id, nullable=False),  # runs that it was created with; some may be deleted since
    Column("idempotency_key", String(200), unique=True),
    Column("idempotency_hash", String(64)),
    Column("created_at", Utc, nullable=False),
    sqlite_autoincrement=True,
)

attempt = Table(
    "attempt",
    metadata,
    run_id_column(key=True),
    attempt_column(key=True),
    Column("worker", String(200), nullable=False),
    Column("claimed_at", Utc, nullable=False),
    Column("heard_at", Utc),  # the claim, a heartbeat or the end, whichever came last; null: from before it was kept
    Column("from_step", Id),  # null until the worker says where it begins
    Column("device", String(200)),
    Column("versions", JSON(none_as_null=True)),
    Column("outcome", String(20)),  # as the worker ended it; null: it has not, or it lost its lease
    Column("secret_sha256", String(64)),  # of the claim's secret; null: claimed before there were any
    Column("claim_key", String(64)),  # drawn by the worker for the claim; null: it drew none
    Column("live_below", Id),  # the smallest from_step of the later attempts; null: all of it is live
)

reward_text = Table(
    "reward_text",
    metadata,
    # the files of a worker's folder that score a run from this attempt on
    run_id_column(key=True),
    attempt_column(key=True),
    Column("name", String(200), primary_key=True),
    Column("sha256", String(64), nullable=False),
    Column("text", Text, nullable=False),
    of_attempt(),
)

report = Table(
    "report",
    metadata,
    run_id_column(key=True),
    attempt_column(key=True),
    Column("seq", Id, primary_key=True, autoincrement=False),
    Column("body_sha256", String(64), nullable=False),
    Column("step", Id),  # of a training step; null for evaluations and logs
    Column("seconds", Float(53)),
    of_attempt(),
)

metric = Table(
    "metric",
    metadata,
    run_id_column(key=True),
    Column("name", String(200), primary_key=True),
    Column("step", Id, primary_key=True, autoincrement=False),
    attempt_column(key=True),
    Column("value", Float(53)),  # null: it was not finite
    of_attempt(),
    sqlite_with_rowid=False,
)

METRIC_WIDTHS = (4, 16, 64, 256, 1024)
"""Steps that a row of `metric_stretch` covers."""

metric_stretch = Table(
    "metric_stretch",
    metadata,
    # the live values of `width` steps from `start` on; evaluations have none
    run_id_column(key=True),
    Column("width", Id, primary_key=True, autoincrement=False),
    Column("name", String(200), primary_key=True),
    Column("start", Id, primary_key=True, autoincrement=False),
    Column("first_step", Id, nullable=False),
    Column("last_step", Id, nullable=False),
    # values, of which `mean`, `low` and `high` are; these are null without any
    Column("finite", Id, nullable=False, server_default="0"),
    Column("missing", Id, nullable=False, server_default="0"),  # values that were not finite
    Column("mean", Float(53)),
    Column("low_step", Id),
    Column("low", Float(53)),
    Column("high_step", Id),
    Column("high", Float(53)),
    sqlite_with_rowid=False,
)

prompt_group = Table(
    "prompt_group",
    metadata,
    Column("id", Id, primary_key=True),
    run_id_column(),
    attempt_column(),
    Column("step", Id, nullable=False),
    Column("index", Id, nullable=False),
    Column("prompt_id", String(200), nullable=False),
    Column("prompt_text", Text, nullable=False),
    Column("folded", Text),  # of prompt_text, for the search: storage.folding.kept_fold
    Column("prompt", Text, nullable=False),
    Column("answer", Text),
    Column("state", String(20), nullable=False),
    Column("scored", Id, nullable=False),
    Column("truncated", Id, nullable=False),
    Column("reward_mean", Float(53)),
    Column("reward_std", Float(53)),
    # what lists show of the completions, so that a list reads one row per group
    Column("rewards", JSON, nullable=False),
    Column("advantages", JSON, nullable=False),
    Column("best", Text),
    Column("worst", Text),
    of_attempt(),
    Index(None, "run_id", "step", "index", "attempt", unique=True),
    # lists find their page in one of these, and read the rows of that page alone
    Index("ix_prompt_group_by_step", "run_id", "step", "index", "id", "attempt", "state", "reward_mean", "reward_std"),
    Index("ix_prompt_group_by_prompt", "run_id", "prompt_id", "step", "id", "attempt", "state", "reward_mean"),
    Index("ix_prompt_group_by_id", "run_id", "id"),
    sqlite_autoincrement=True,
)

pair = Table(
    "pair",
    metadata,
    # a preference pair that a step trained on
    run_id_column(key=True),
    Column("step", Id, primary_key=True, autoincrement=False),
    Column("index", Id, primary_key=True, autoincrement=False),
    attempt_column(key=True),
    Column("prompt_id", String(200), nullable=False),
    Column("prompt", Text, nullable=False),
    Column("chosen", Text, nullable=False),
    Column("rejected", Text, nullable=False),
    Column("margin", Float(53)),  # null: it was not finite
    of_attempt(),
)

replayed = Table(
    "replayed",
    metadata,
    # what a replay found of its step: backend.contract.replay.Replayed
    run_id_column(key=True),
    attempt_column(key=True),
    Column("found", JSON, nullable=False),
    of_attempt(),
)

# each order has all that a list filters by, so that it finds its page without a row of the table
COMPLETION_ORDERS = {
    "step": ("run_id", "step", "id", "attempt", "state", "finish_reason", "token_count", "reward", "advantage"),
    "reward": ("run_id", "reward", "step", "id", "attempt", "state", "finish_reason", "token_count", "advantage"),
    "advantage": ("run_id", "advantage", "step", "id", "attempt", "state", "finish_reason", "token_count", "reward"),
    "tokens": ("run_id", "token_count", "step", "id", "attempt", "state", "finish_reason", "reward", "advantage"),
}

completion = Table(
    "completion",
    metadata,
    Column("id", Id, primary_key=True),
    Column("group_id", Id, ForeignKey("prompt_group.id", ondelete="CASCADE"), nullable=False),
    Column("index", Id, nullable=False),
    Column("text", Text, nullable=False),
    Column("folded", Text),  # for the search: storage.folding.kept_fold
    Column("turns", JSON, nullable=False, server_default="[]"),
    Column("token_count", Id, nullable=False),
    Column("finish_reason", String(20), nullable=False),
    Column("rewards", JSON, nullable=False),
    Column("reward", Float(53)),
    Column("advantage", Float(53)),
    Column("logprob_sum", Float(53)),
    Column("logprob_sum_after", Float(53)),
    Column("kl_mean", Float(53)),
    Column("entropy_mean", Float(53)),
    Column("ratio_mean", Float(53)),
    Column("clipped_share", Float(53)),
    Column("has_trace", Boolean, nullable=False),
    # its group's, so that a list of completions reads no group; the defaults let SQLite add the columns in place
    Column("run_id", Id, nullable=False, server_default="0"),
    Column("attempt", Id, nullable=False, server_default="0"),
    Column("step", Id, nullable=False, server_default="0"),
    Column("state", String(20), nullable=False, server_default=""),
    Index(None, "group_id", "index", unique=True),
    *(Index(f"ix_completion_by_{by}", *columns) for by, columns in COMPLETION_ORDERS.items()),
    sqlite_autoincrement=True,
)

trace_file = Table(
    "trace_file",
    metadata,
    run_id_column(key=True),
    attempt_column(key=True),
    Column("step", Id, primary_key=True, autoincrement=False),
    Column("path", String(200), nullable=False),  # below <home>/traces
    Column("sha256", String(64), nullable=False),
    Column("size_bytes", Id, nullable=False),
    Column("rows", Id, nullable=False),
    of_attempt(),
)

checkpoint = Table(
    "checkpoint",
    metadata,
    run_id_column(key=True),
    attempt_column(key=True),
    Column("step", Id, primary_key=True, autoincrement=False),
    Column("store", String(200), nullable=False),
    Column("path", String(200), nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("size_bytes", Id, nullable=False),
    Column("created_at", Utc, nullable=False),
    of_attempt(),
)

log_line = Table(
    "log_line",
    metadata,
    Column("id", Id, primary_key=True),
    run_id_column(),
    attempt_column(),
    Column("level", String(20), nullable=False),
    Column("message", Text, nullable=False),
    Column("created_at", Utc, nullable=False),
    of_attempt(),
    Index(None, "run_id", "id"),
    sqlite_autoincrement=True,
)

run_event = Table(
    "run_event",
    metadata,
    Column("id", Id, primary_key=True),
    run_id_column(),
    Column("kind", String(20), nullable=False),
    Column("payload", JSON, nullable=False),
    Column("created_at", Utc, nullable=False),
    Index(None, "run_id", "id"),
    sqlite_autoincrement=True,
)

worker = Table(
    "worker",
    metadata,
    Column("name", String(200), primary_key=True),
    Column("device", String(200), nullable=False),
    Column("memory_bytes", Id),
    Column("store", String(200), nullable=False),
    Column("versions", JSON, nullable=False),
    Column("judges", JSON, nullable=False, server_default="[]"),
    Column("reward_functions", JSON, nullable=False, server_default="[]"),
    Column("reward_files", JSON, nullable=False, server_default="[]"),
    Column("engines", JSON, nullable=False, server_default='["native"]'),
    Column("processes", Integer, nullable=False, server_default="1"),
    Column("models", JSON, nullable=False, server_default="[]"),
    Column("missing_nodes", JSON, nullable=False, server_default="[]"),
    Column("seen_at", Float(53), nullable=False),  # by Clock.seconds
)

upload = Table(
    "upload",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", String(200), nullable=False),
    Column("rows", Id, nullable=False),
    Column("columns", JSON, nullable=False),
    Column("size_bytes", Id, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("created_at", Utc, nullable=False),
    # how it was read when it came; the file that is kept is JSON lines in UTF-8
    Column("format", String(20), nullable=False, server_default="jsonl"),
    Column("encoding", String(40)),
    Column("separator", String(20)),
    Column("duplicates", Id),  # null: from before they were counted
    Column("empty", Id),
    Column("missing", JSON),  # column -> how many rows lack it, and the first of them
    Column("notes", JSON, nullable=False, server_default="[]"),
    sqlite_autoincrement=True,
)


bookmark = Table(
    "bookmark",
    metadata,
    Column("group_id", Id, ForeignKey("prompt_group.id", ondelete="CASCADE"), primary_key=True),
    Column("note", Text, nullable=False),
    Column("updated_at", Utc, nullable=False),
)

thumb = Table(
    "thumb",
    metadata,
    Column("completion_id", Id, ForeignKey("completion.id", ondelete="CASCADE"), primary_key=True),
    Column("thumb", String(20), nullable=False),
    Column("created_at", Utc, nullable=False),
)

choice = Table(
    "choice",
    metadata,
    Column("id", Id, primary_key=True),
    Column("group_id", Id, ForeignKey("prompt_group.id", ondelete="CASCADE"), nullable=False),
    Column("better_id", Id, ForeignKey("completion.id", ondelete="CASCADE"), nullable=False),
    Column("worse_id", Id, ForeignKey("completion.id", ondelete="CASCADE"), nullable=False),
    Column("created_at", Utc, nullable=False),
    UniqueConstraint("better_id", "worse_id"),
    Index(None, "group_id"),
    Index(None, "worse_id"),
    sqlite_autoincrement=True,
)
