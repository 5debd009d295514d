"""What a run needs of a worker and of other runs, beside its configuration: a claim looks through the queue without reading one."""

import json
import re
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

CHECKPOINT = re.compile(r"run:(\d+)@\d+")
RUNS = sa.table("run", sa.column("id", sa.Integer), sa.column("config", sa.JSON), sa.column("needs", sa.Text))


def upgrade() -> None:
    op.add_column("run", sa.Column("needs", sa.Text, nullable=False, server_default="{}"))
    connection = op.get_bind()
    for (run_id,) in connection.execute(sa.select(RUNS.c.id)).all():
        config = connection.execute(sa.select(RUNS.c.config).where(RUNS.c.id == run_id)).scalar_one()
        needs = json.dumps(_needs(config), separators=(",", ":"))
        connection.execute(sa.update(RUNS).where(RUNS.c.id == run_id).values(needs=needs))
    op.drop_index("ix_run_status", "run")
    op.create_index("ix_run_queue", "run", ["status", "kind", "priority", "id", "store", "needs"])


def _rewards(config: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, parent in (("rewards", config), ("pairs.rewards", config.get("pairs") or {})):
        for index, one in enumerate((parent.get("rewards") or {}).get("functions") or ()):
            yield f"{path}.functions.{index}", one


def _needs(config: dict[str, Any]) -> dict[str, Any]:
    rewards = list(_rewards(config))
    sources = [one["source"] for _, one in rewards if one["kind"] == "reward_model"] + [
        (config.get("model") or {}).get("source", "")
    ]
    return {
        "judges": {one["endpoint"]: f"{field}.endpoint" for field, one in rewards if one["kind"] == "judge"},
        "functions": {one["function"]: f"{field}.function" for field, one in rewards if one["kind"] == "python"},
        "engine": (config.get("sampling") or {}).get("engine", "native"),
        "runs": sorted({int(found[1]) for one in sources if (found := CHECKPOINT.fullmatch(one))}),
    }


def downgrade() -> None:
    op.drop_index("ix_run_queue", "run")
    op.create_index("ix_run_status", "run", ["status"])
    op.drop_column("run", "needs")
