"""The commit of the Hub model that a run began from; runs of before do not say theirs."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run", sa.Column("model_commit", sa.String(40)))


def downgrade() -> None:
    op.drop_column("run", "model_commit")
