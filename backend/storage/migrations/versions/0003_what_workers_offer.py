"""What workers offer to rewards: the judges and the Python functions that their operators named."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

OFFERS = ("judges", "reward_functions")


def upgrade() -> None:
    for name in OFFERS:
        op.add_column("worker", sa.Column(name, sa.JSON(), nullable=False, server_default="[]"))


def downgrade() -> None:
    for name in OFFERS:
        op.drop_column("worker", name)
