"""Lists of completions at scale, search in texts, roll-ups of metrics, and what people say.

Completions get the run, attempt, step and state of their group, in place: building the table anew would forget which
numbers it has given. Texts of completions and prompts get an index of trigrams (SQLite alone has it), kept by triggers;
it stores no text, and no positions: a search reads the rows that it finds.
"""

import sqlalchemy as sa
from alembic import op

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
WIDTHS = (4, 16, 64, 256, 1024)
SEARCHED = {"completion_trigrams": ("completion", "text"), "prompt_trigrams": ("prompt_group", "prompt_text")}
ORDERS = {
    "step": ["run_id", "step", "id", "attempt", "state", "finish_reason", "token_count", "reward", "advantage"],
    "reward": ["run_id", "reward", "step", "id", "attempt", "state", "finish_reason", "token_count", "advantage"],
    "advantage": ["run_id", "advantage", "step", "id", "attempt", "state", "finish_reason", "token_count", "reward"],
    "tokens": ["run_id", "token_count", "step", "id", "attempt", "state", "finish_reason", "reward", "advantage"],
}

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

STRETCHES = """
    INSERT INTO metric_stretch
        (run_id, width, name, start, count, first_step, first, low_step, low, high_step, high, last_step, last, missing_step)
    WITH live AS (
        SELECT metric.run_id, name, metric.step, value, step - step % :width AS start
        FROM metric
        JOIN attempt ON attempt.run_id = metric.run_id AND attempt.attempt = metric.attempt
        WHERE (live_below IS NULL OR step < live_below) AND name NOT LIKE 'eval/%'
    ), ranked AS (
        SELECT *,
            row_number() OVER (stretch ORDER BY step) AS from_first,
            row_number() OVER (stretch ORDER BY step DESC) AS from_last,
            row_number() OVER (stretch ORDER BY value IS NULL, value, step) AS from_low,
            row_number() OVER (stretch ORDER BY value IS NULL, value DESC, step) AS from_high
        FROM live WINDOW stretch AS (PARTITION BY run_id, name, start)
    )
    SELECT run_id, :width, name, start, count(*),
        min(CASE WHEN from_first = 1 THEN step END), min(CASE WHEN from_first = 1 THEN value END),
        min(CASE WHEN from_low = 1 AND value IS NOT NULL THEN step END), min(value),
        min(CASE WHEN from_high = 1 AND value IS NOT NULL THEN step END), max(value),
        min(CASE WHEN from_last = 1 THEN step END), min(CASE WHEN from_last = 1 THEN value END),
        min(CASE WHEN value IS NULL THEN step END)
    FROM ranked GROUP BY run_id, name, start
"""


def upgrade() -> None:
    _completions()
    _groups()
    _metrics()
    _people()
    if op.get_bind().dialect.name == "sqlite":
        _trigrams()


def _completions() -> None:
    for name in ("run_id", "attempt", "step"):
        op.add_column("completion", sa.Column(name, ID, nullable=False, server_default="0"))
    op.add_column("completion", sa.Column("state", sa.String(length=20), nullable=False, server_default=""))
    op.execute("""
        UPDATE completion SET run_id = of.run_id, attempt = of.attempt, step = of.step, state = of.state
        FROM prompt_group AS of WHERE of.id = completion.group_id
    """)
    for by, columns in ORDERS.items():
        op.create_index(f"ix_completion_by_{by}", "completion", columns)


def _groups() -> None:
    op.create_index(
        "ix_prompt_group_by_step",
        "prompt_group",
        ["run_id", "step", "index", "id", "attempt", "state", "reward_mean", "reward_std"],
    )
    op.create_index(
        "ix_prompt_group_by_prompt",
        "prompt_group",
        ["run_id", "prompt_id", "step", "id", "attempt", "state", "reward_mean"],
    )
    op.drop_index("ix_prompt_group_run_id_prompt_id", "prompt_group")


def _metrics() -> None:
    op.create_table(
        "metric_stretch",
        sa.Column("run_id", ID, nullable=False),
        sa.Column("width", ID, autoincrement=False, nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("start", ID, autoincrement=False, nullable=False),
        sa.Column("count", ID, nullable=False),
        sa.Column("first_step", ID, nullable=False),
        sa.Column("first", sa.Float(precision=53), nullable=True),
        sa.Column("low_step", ID, nullable=True),
        sa.Column("low", sa.Float(precision=53), nullable=True),
        sa.Column("high_step", ID, nullable=True),
        sa.Column("high", sa.Float(precision=53), nullable=True),
        sa.Column("last_step", ID, nullable=False),
        sa.Column("last", sa.Float(precision=53), nullable=True),
        sa.Column("missing_step", ID, nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_metric_stretch_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "width", "name", "start", name=op.f("pk_metric_stretch")),
        sqlite_with_rowid=False,
    )
    for width in WIDTHS:
        op.execute(sa.text(STRETCHES).bindparams(width=width))


def _people() -> None:
    op.create_table(
        "bookmark",
        sa.Column("group_id", ID, nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["group_id"], ["prompt_group.id"], name=op.f("fk_bookmark_group_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("group_id", name=op.f("pk_bookmark")),
    )
    op.create_table(
        "thumb",
        sa.Column("completion_id", ID, nullable=False),
        sa.Column("thumb", sa.String(length=20), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["completion_id"], ["completion.id"], name=op.f("fk_thumb_completion_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("completion_id", name=op.f("pk_thumb")),
    )
    op.create_table(
        "choice",
        sa.Column("id", ID, nullable=False),
        sa.Column("group_id", ID, nullable=False),
        sa.Column("better_id", ID, nullable=False),
        sa.Column("worse_id", ID, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["group_id"], ["prompt_group.id"], name=op.f("fk_choice_group_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["better_id"], ["completion.id"], name=op.f("fk_choice_better_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["worse_id"], ["completion.id"], name=op.f("fk_choice_worse_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_choice")),
        sa.UniqueConstraint("better_id", "worse_id", name=op.f("uq_choice_better_id_worse_id")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_choice_group_id", "choice", ["group_id"])
    op.create_index("ix_choice_worse_id", "choice", ["worse_id"])


def _trigrams() -> None:
    for index, (table, column) in SEARCHED.items():
        op.execute(
            f"CREATE VIRTUAL TABLE {index} USING fts5("
            f"{column}, content='{table}', content_rowid='id', tokenize='trigram', detail='none')"
        )
        op.execute(f"INSERT INTO {index} ({index}) VALUES ('rebuild')")
        op.execute(
            f"CREATE TRIGGER {table}_gains_{column} AFTER INSERT ON {table} BEGIN "
            f"INSERT INTO {index} (rowid, {column}) VALUES (new.id, new.{column}); END"
        )
        op.execute(
            f"CREATE TRIGGER {table}_loses_{column} AFTER DELETE ON {table} BEGIN "
            f"INSERT INTO {index} ({index}, rowid, {column}) VALUES ('delete', old.id, old.{column}); END"
        )


def downgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        for index, (table, column) in SEARCHED.items():
            op.execute(f"DROP TRIGGER {table}_loses_{column}")
            op.execute(f"DROP TRIGGER {table}_gains_{column}")
            op.execute(f"DROP TABLE {index}")
    for table in ("choice", "thumb", "bookmark", "metric_stretch"):
        op.drop_table(table)
    op.create_index("ix_prompt_group_run_id_prompt_id", "prompt_group", ["run_id", "prompt_id"])
    op.drop_index("ix_prompt_group_by_prompt", "prompt_group")
    op.drop_index("ix_prompt_group_by_step", "prompt_group")
    for by in ORDERS:
        op.drop_index(f"ix_completion_by_{by}", "completion")
    for name in ("state", "step", "attempt", "run_id"):
        op.drop_column("completion", name)
