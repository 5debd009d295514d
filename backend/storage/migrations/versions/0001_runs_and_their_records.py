"""Runs and their records: the first schema."""

import sqlalchemy as sa
from alembic import op

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "run",
        sa.Column("id", ID, nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("requested", sa.String(length=20), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("notes", sa.Text(), nullable=False),
        sa.Column("parent_id", ID, nullable=True),
        sa.Column("source_run_id", ID, nullable=True),
        sa.Column("upload_id", ID, nullable=True),
        sa.Column("store", sa.String(length=200), nullable=True),
        sa.Column("idempotency_key", sa.String(length=200), nullable=True),
        sa.Column("idempotency_hash", sa.String(length=64), nullable=True),
        sa.Column("attempt", ID, nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("worker", sa.String(length=200), nullable=True),
        sa.Column("device", sa.String(length=200), nullable=True),
        sa.Column("lease_until", sa.Float(precision=53), nullable=True),
        sa.Column("step", ID, nullable=False),
        sa.Column("total_steps", ID, nullable=False),
        sa.Column("eta_seconds", sa.Float(precision=53), nullable=True),
        sa.Column("phase", sa.String(length=200), nullable=True),
        sa.Column("phase_done", ID, nullable=True),
        sa.Column("phase_total", ID, nullable=True),
        sa.Column("error", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("summary", sa.JSON(), nullable=False),
        sa.Column("sparkline", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("status <> 'running' OR lease_until IS NOT NULL", name=op.f("ck_run_running_has_a_lease")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run")),
        sa.UniqueConstraint("idempotency_key", name=op.f("uq_run_idempotency_key")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_run_source_run_id", "run", ["source_run_id"])
    op.create_index("ix_run_status", "run", ["status"])

    op.create_table(
        "upload",
        sa.Column("id", ID, nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("rows", ID, nullable=False),
        sa.Column("columns", sa.JSON(), nullable=False),
        sa.Column("size_bytes", ID, nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_upload")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "worker",
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("device", sa.String(length=200), nullable=False),
        sa.Column("memory_bytes", ID, nullable=True),
        sa.Column("store", sa.String(length=200), nullable=False),
        sa.Column("versions", sa.JSON(), nullable=False),
        sa.Column("seen_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_worker")),
    )
    op.create_table(
        "attempt",
        sa.Column("run_id", ID, nullable=False),
        sa.Column("attempt", ID, autoincrement=False, nullable=False),
        sa.Column("worker", sa.String(length=200), nullable=False),
        sa.Column("claimed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("from_step", ID, nullable=True),
        sa.Column("device", sa.String(length=200), nullable=True),
        sa.Column("versions", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("outcome", sa.String(length=20), nullable=True),
        sa.Column("live_below", ID, nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_attempt_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "attempt", name=op.f("pk_attempt")),
    )
    op.create_table(
        "run_event",
        sa.Column("id", ID, nullable=False),
        sa.Column("run_id", ID, nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_run_event_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run_event")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_run_event_run_id_id", "run_event", ["run_id", "id"])

    op.create_table(
        "checkpoint",
        sa.Column("run_id", ID, nullable=False),
        sa.Column("attempt", ID, autoincrement=False, nullable=False),
        sa.Column("step", ID, autoincrement=False, nullable=False),
        sa.Column("store", sa.String(length=200), nullable=False),
        sa.Column("path", sa.String(length=200), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size_bytes", ID, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id", "attempt"],
            ["attempt.run_id", "attempt.attempt"],
            name=op.f("fk_checkpoint_run_id_attempt"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_checkpoint_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "attempt", "step", name=op.f("pk_checkpoint")),
    )
    op.create_table(
        "log_line",
        sa.Column("id", ID, nullable=False),
        sa.Column("run_id", ID, nullable=False),
        sa.Column("attempt", ID, autoincrement=False, nullable=False),
        sa.Column("level", sa.String(length=20), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id", "attempt"],
            ["attempt.run_id", "attempt.attempt"],
            name=op.f("fk_log_line_run_id_attempt"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_log_line_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_log_line")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_log_line_run_id_id", "log_line", ["run_id", "id"])

    op.create_table(
        "metric",
        sa.Column("run_id", ID, nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("step", ID, autoincrement=False, nullable=False),
        sa.Column("attempt", ID, autoincrement=False, nullable=False),
        sa.Column("value", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(
            ["run_id", "attempt"],
            ["attempt.run_id", "attempt.attempt"],
            name=op.f("fk_metric_run_id_attempt"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_metric_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "name", "step", "attempt", name=op.f("pk_metric")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "prompt_group",
        sa.Column("id", ID, nullable=False),
        sa.Column("run_id", ID, nullable=False),
        sa.Column("attempt", ID, autoincrement=False, nullable=False),
        sa.Column("step", ID, nullable=False),
        sa.Column("index", ID, nullable=False),
        sa.Column("prompt_id", sa.String(length=200), nullable=False),
        sa.Column("prompt_text", sa.Text(), nullable=False),
        sa.Column("prompt", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("scored", ID, nullable=False),
        sa.Column("truncated", ID, nullable=False),
        sa.Column("reward_mean", sa.Float(precision=53), nullable=True),
        sa.Column("reward_std", sa.Float(precision=53), nullable=True),
        sa.Column("rewards", sa.JSON(), nullable=False),
        sa.Column("advantages", sa.JSON(), nullable=False),
        sa.Column("best", sa.Text(), nullable=True),
        sa.Column("worst", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["run_id", "attempt"],
            ["attempt.run_id", "attempt.attempt"],
            name=op.f("fk_prompt_group_run_id_attempt"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_prompt_group_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_prompt_group")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_prompt_group_run_id_prompt_id", "prompt_group", ["run_id", "prompt_id"])
    op.create_index(
        "ix_prompt_group_run_id_step_index_attempt", "prompt_group", ["run_id", "step", "index", "attempt"], unique=True
    )

    op.create_table(
        "report",
        sa.Column("run_id", ID, nullable=False),
        sa.Column("attempt", ID, autoincrement=False, nullable=False),
        sa.Column("seq", ID, autoincrement=False, nullable=False),
        sa.Column("body_sha256", sa.String(length=64), nullable=False),
        sa.Column("step", ID, nullable=True),
        sa.Column("seconds", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(
            ["run_id", "attempt"],
            ["attempt.run_id", "attempt.attempt"],
            name=op.f("fk_report_run_id_attempt"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_report_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "attempt", "seq", name=op.f("pk_report")),
    )
    op.create_table(
        "trace_file",
        sa.Column("run_id", ID, nullable=False),
        sa.Column("attempt", ID, autoincrement=False, nullable=False),
        sa.Column("step", ID, autoincrement=False, nullable=False),
        sa.Column("path", sa.String(length=200), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size_bytes", ID, nullable=False),
        sa.Column("rows", ID, nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id", "attempt"],
            ["attempt.run_id", "attempt.attempt"],
            name=op.f("fk_trace_file_run_id_attempt"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_trace_file_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "attempt", "step", name=op.f("pk_trace_file")),
    )
    op.create_table(
        "completion",
        sa.Column("id", ID, nullable=False),
        sa.Column("group_id", ID, nullable=False),
        sa.Column("index", ID, nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("token_count", ID, nullable=False),
        sa.Column("finish_reason", sa.String(length=20), nullable=False),
        sa.Column("rewards", sa.JSON(), nullable=False),
        sa.Column("reward", sa.Float(precision=53), nullable=True),
        sa.Column("advantage", sa.Float(precision=53), nullable=True),
        sa.Column("logprob_sum", sa.Float(precision=53), nullable=True),
        sa.Column("logprob_sum_after", sa.Float(precision=53), nullable=True),
        sa.Column("kl_mean", sa.Float(precision=53), nullable=True),
        sa.Column("entropy_mean", sa.Float(precision=53), nullable=True),
        sa.Column("ratio_mean", sa.Float(precision=53), nullable=True),
        sa.Column("clipped_share", sa.Float(precision=53), nullable=True),
        sa.Column("has_trace", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["group_id"], ["prompt_group.id"], name=op.f("fk_completion_group_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_completion")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_completion_group_id_index", "completion", ["group_id", "index"], unique=True)


def downgrade() -> None:
    op.drop_index("ix_completion_group_id_index", "completion")

    op.drop_table("completion")
    op.drop_table("trace_file")
    op.drop_table("report")
    op.drop_index("ix_prompt_group_run_id_step_index_attempt", "prompt_group")
    op.drop_index("ix_prompt_group_run_id_prompt_id", "prompt_group")

    op.drop_table("prompt_group")
    op.drop_table("metric")
    op.drop_index("ix_log_line_run_id_id", "log_line")

    op.drop_table("log_line")
    op.drop_table("checkpoint")
    op.drop_index("ix_run_event_run_id_id", "run_event")

    op.drop_table("run_event")
    op.drop_table("attempt")
    op.drop_table("worker")
    op.drop_table("upload")
    op.drop_index("ix_run_status", "run")
    op.drop_index("ix_run_source_run_id", "run")

    op.drop_table("run")
