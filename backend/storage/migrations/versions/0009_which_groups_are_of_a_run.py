"""Between which numbers the groups of a run lie: the first and the last of them are found without reading the others."""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_prompt_group_by_id", "prompt_group", ["run_id", "id"])


def downgrade() -> None:
    op.drop_index("ix_prompt_group_by_id", "prompt_group")
