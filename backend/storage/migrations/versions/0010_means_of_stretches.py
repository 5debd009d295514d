"""The mean of each stretch of a metric beside its extremes, counted anew from the values: charts had drawn the middle of the extremes.

What was only good for drawing extremes (the values at both ends, and where the first gap was) goes.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
GONE: dict[str, sa.types.TypeEngine[Any]] = {
    "count": ID,
    "first": sa.Float(53),
    "last": sa.Float(53),
    "missing_step": ID,
}

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

WIDTHS = (4, 16, 64, 256, 1024)
MEANS = """
    UPDATE metric_stretch SET finite = of.finite, missing = of.missing, mean = of.mean
    FROM (
        SELECT metric.run_id, name, step / :width * :width AS start,
            count(value) AS finite, count(*) - count(value) AS missing, avg(value) AS mean
        FROM metric
        JOIN attempt ON attempt.run_id = metric.run_id AND attempt.attempt = metric.attempt
        WHERE (live_below IS NULL OR step < live_below) AND name NOT LIKE 'eval/%'
        GROUP BY 1, 2, 3
    ) AS of
    WHERE metric_stretch.width = :width AND metric_stretch.run_id = of.run_id
        AND metric_stretch.name = of.name AND metric_stretch.start = of.start
"""
ENDS = """
    UPDATE metric_stretch SET count = finite + missing, {end} = (
        SELECT value FROM metric
        JOIN attempt ON attempt.run_id = metric.run_id AND attempt.attempt = metric.attempt
        WHERE metric.run_id = metric_stretch.run_id AND name = metric_stretch.name AND step = metric_stretch.{end}_step
            AND (live_below IS NULL OR step < live_below)
    )
"""


def upgrade() -> None:
    for name in ("finite", "missing"):
        op.add_column("metric_stretch", sa.Column(name, ID, nullable=False, server_default="0"))
    op.add_column("metric_stretch", sa.Column("mean", sa.Float(53), nullable=True))
    for width in WIDTHS:
        op.execute(sa.text(MEANS).bindparams(width=width))
    for name in GONE:
        op.drop_column("metric_stretch", name)


def downgrade() -> None:
    for name, kind in GONE.items():
        nullable = name != "count"
        op.add_column(
            "metric_stretch", sa.Column(name, kind, nullable=nullable, server_default=None if nullable else "0")
        )
    for end in ("first", "last"):
        op.execute(ENDS.format(end=end))
    for name in ("finite", "missing", "mean"):
        op.drop_column("metric_stretch", name)
