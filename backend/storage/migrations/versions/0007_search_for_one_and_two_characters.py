"""Search for one and two characters: each trigram can be found by its beginning.

A text is indexed with two signs behind it, so that its last characters begin a trigram, too. A second virtual table lists the
trigrams of an index in their order; it stores nothing.
"""

from alembic import op

SEARCHED = {"completion_trigrams": ("completion", "text"), "prompt_trigrams": ("prompt_group", "prompt_text")}

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        for index, (table, column) in SEARCHED.items():
            _drop(index, table, column)
            _build(index, table, column, content="", behind=" || char(1, 1)")
            op.execute(f"CREATE VIRTUAL TABLE {index}_places USING fts5vocab('{index}', 'instance')")


def downgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        for index, (table, column) in SEARCHED.items():
            op.execute(f"DROP TABLE {index}_places")
            _drop(index, table, column)
            _build(index, table, column, content=table, behind="")


def _drop(index: str, table: str, column: str) -> None:
    op.execute(f"DROP TRIGGER {table}_loses_{column}")
    op.execute(f"DROP TRIGGER {table}_gains_{column}")
    op.execute(f"DROP TABLE {index}")


def _build(index: str, table: str, column: str, *, content: str, behind: str) -> None:
    """The index and the triggers that keep it; it stores no text."""
    op.execute(
        f"CREATE VIRTUAL TABLE {index} USING fts5("
        f"{column}, content='{content}', content_rowid='id', tokenize='trigram', detail='none')"
    )
    op.execute(f"INSERT INTO {index} (rowid, {column}) SELECT id, {column}{behind} FROM {table}")
    op.execute(
        f"CREATE TRIGGER {table}_gains_{column} AFTER INSERT ON {table} BEGIN "
        f"INSERT INTO {index} (rowid, {column}) VALUES (new.id, new.{column}{behind}); END"
    )
    op.execute(
        f"CREATE TRIGGER {table}_loses_{column} AFTER DELETE ON {table} BEGIN "
        f"INSERT INTO {index} ({index}, rowid, {column}) VALUES ('delete', old.id, old.{column}{behind}); END"
    )
