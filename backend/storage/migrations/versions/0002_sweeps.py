"""Sweeps: runs that were queued together.

The column of the run is added in place: building the table anew would drop the old one, and its records with it.
"""

import sqlalchemy as sa
from alembic import op

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sweep",
        sa.Column("id", ID, nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("total", ID, nullable=False),
        sa.Column("idempotency_key", sa.String(length=200), nullable=True),
        sa.Column("idempotency_hash", sa.String(length=64), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sweep")),
        sa.UniqueConstraint("idempotency_key", name=op.f("uq_sweep_idempotency_key")),
        sqlite_autoincrement=True,
    )
    op.add_column("run", sa.Column("sweep_id", ID, nullable=True))
    op.create_index("ix_run_sweep_id", "run", ["sweep_id"])


def downgrade() -> None:
    op.drop_index("ix_run_sweep_id", "run")
    op.drop_column("run", "sweep_id")
    op.drop_table("sweep")
