"""Every table. The migrations build the same; a test compares them."""

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


def _run_id(*, key: bool = False) -> Column[int]:
    return Column("run_id", Id, ForeignKey("run.id", ondelete="CASCADE"), nullable=False, primary_key=key)


def _attempt(*, key: bool = False) -> Column[int]:
    return Column("attempt", Id, nullable=False, primary_key=key, autoincrement=False)


def _of_attempt() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(["run_id", "attempt"], ["attempt.run_id", "attempt.attempt"], ondelete="CASCADE")


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
    Column("lease_until", Float(53)),  # by Clock.seconds
    Column("step", Id, nullable=False),
    Column("total_steps", Id, nullable=False),
    Column("eta_seconds", Float(53)),
    Column("phase", String(200)),
    Column("phase_done", Id),
    Column("phase_total", Id),
    Column("error", JSON(none_as_null=True)),
    # what lists show of the live metrics, so that a list reads one row per run
    Column("summary", JSON, nullable=False),
    Column("sparkline", JSON, nullable=False),
    Column("created_at", Utc, nullable=False),
    Column("started_at", Utc),
    Column("finished_at", Utc),
    CheckConstraint("status <> 'running' OR lease_until IS NOT NULL", name="running_has_a_lease"),
    Index(None, "status"),
    Index(None, "source_run_id"),
    Index(None, "sweep_id"),
    sqlite_autoincrement=True,
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
    _run_id(key=True),
    _attempt(key=True),
    Column("worker", String(200), nullable=False),
    Column("claimed_at", Utc, nullable=False),
    Column("from_step", Id),  # null until the worker says where it begins
    Column("device", String(200)),
    Column("versions", JSON(none_as_null=True)),
    Column("outcome", String(20)),  # as the worker ended it; null: it has not, or it lost its lease
    Column("live_below", Id),  # the smallest from_step of the later attempts; null: all of it is live
)

report = Table(
    "report",
    metadata,
    _run_id(key=True),
    _attempt(key=True),
    Column("seq", Id, primary_key=True, autoincrement=False),
    Column("body_sha256", String(64), nullable=False),
    Column("step", Id),  # of a training step; null for evaluations and logs
    Column("seconds", Float(53)),
    _of_attempt(),
)

metric = Table(
    "metric",
    metadata,
    _run_id(key=True),
    Column("name", String(200), primary_key=True),
    Column("step", Id, primary_key=True, autoincrement=False),
    _attempt(key=True),
    Column("value", Float(53)),  # null: it was not finite
    _of_attempt(),
    sqlite_with_rowid=False,
)

prompt_group = Table(
    "prompt_group",
    metadata,
    Column("id", Id, primary_key=True),
    _run_id(),
    _attempt(),
    Column("step", Id, nullable=False),
    Column("index", Id, nullable=False),
    Column("prompt_id", String(200), nullable=False),
    Column("prompt_text", Text, nullable=False),
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
    _of_attempt(),
    Index(None, "run_id", "step", "index", "attempt", unique=True),
    Index(None, "run_id", "prompt_id"),
    sqlite_autoincrement=True,
)

completion = Table(
    "completion",
    metadata,
    Column("id", Id, primary_key=True),
    Column("group_id", Id, ForeignKey("prompt_group.id", ondelete="CASCADE"), nullable=False),
    Column("index", Id, nullable=False),
    Column("text", Text, nullable=False),
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
    Index(None, "group_id", "index", unique=True),
    sqlite_autoincrement=True,
)

trace_file = Table(
    "trace_file",
    metadata,
    _run_id(key=True),
    _attempt(key=True),
    Column("step", Id, primary_key=True, autoincrement=False),
    Column("path", String(200), nullable=False),  # below <home>/traces
    Column("sha256", String(64), nullable=False),
    Column("size_bytes", Id, nullable=False),
    Column("rows", Id, nullable=False),
    _of_attempt(),
)

checkpoint = Table(
    "checkpoint",
    metadata,
    _run_id(key=True),
    _attempt(key=True),
    Column("step", Id, primary_key=True, autoincrement=False),
    Column("store", String(200), nullable=False),
    Column("path", String(200), nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("size_bytes", Id, nullable=False),
    Column("created_at", Utc, nullable=False),
    _of_attempt(),
)

log_line = Table(
    "log_line",
    metadata,
    Column("id", Id, primary_key=True),
    _run_id(),
    _attempt(),
    Column("level", String(20), nullable=False),
    Column("message", Text, nullable=False),
    Column("created_at", Utc, nullable=False),
    _of_attempt(),
    Index(None, "run_id", "id"),
    sqlite_autoincrement=True,
)

run_event = Table(
    "run_event",
    metadata,
    Column("id", Id, primary_key=True),
    _run_id(),
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
    Column("engines", JSON, nullable=False, server_default='["native"]'),
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
    sqlite_autoincrement=True,
)
