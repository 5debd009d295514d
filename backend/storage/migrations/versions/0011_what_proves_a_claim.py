"""A hash of the secret that a claim gave out: an attempt from before has none, and is asked for none until it ends."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("attempt", sa.Column("secret_sha256", sa.String(64)))


def downgrade() -> None:
    op.drop_column("attempt", "secret_sha256")
