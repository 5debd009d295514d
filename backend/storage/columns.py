"""What every table is made of: the naming of constraints, row numbers, moments, and the keys that are shared."""

from datetime import UTC, datetime

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Dialect,
    ForeignKey,
    ForeignKeyConstraint,
    Integer,
    MetaData,
    TypeDecorator,
)

NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}
metadata = MetaData(naming_convention=NAMES)

Id = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows by itself only for INTEGER


class Utc(TypeDecorator[datetime]):
    """A moment in UTC, also where the database forgets the zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        """To UTC."""
        return value.astimezone(UTC) if value else None

    def process_result_value(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        """With its zone."""
        return value.replace(tzinfo=UTC) if value and value.tzinfo is None else value


def run_id_column(*, key: bool = False) -> Column[int]:
    """The run that a row belongs to, and goes with."""
    return Column("run_id", Id, ForeignKey("run.id", ondelete="CASCADE"), nullable=False, primary_key=key)


def attempt_column(*, key: bool = False) -> Column[int]:
    """The attempt that brought a row."""
    return Column("attempt", Id, nullable=False, primary_key=key, autoincrement=False)


def of_attempt() -> ForeignKeyConstraint:
    """A row goes with its attempt."""
    return ForeignKeyConstraint(["run_id", "attempt"], ["attempt.run_id", "attempt.attempt"], ondelete="CASCADE")
