"""What workers can sample with; those that never said so have the native engine."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("worker", sa.Column("engines", sa.JSON(), nullable=False, server_default='["native"]'))


def downgrade() -> None:
    op.drop_column("worker", "engines")
