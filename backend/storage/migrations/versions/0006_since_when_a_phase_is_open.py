"""Since when a run is in its phase, so that one that does not end can be told; of phases open meanwhile it is not known."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run", sa.Column("phase_since", sa.Float(precision=53), nullable=True))


def downgrade() -> None:
    op.drop_column("run", "phase_since")
