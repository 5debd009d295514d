"""The key that a worker drew for its claim: sent again, because the answer got lost, it is the same claim."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("attempt", sa.Column("claim_key", sa.String(64)))


def downgrade() -> None:
    op.drop_column("attempt", "claim_key")
