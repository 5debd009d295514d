"""Alembic's entry: runs in the transaction that `backend.storage.migrate` opened."""

from alembic import context

from backend.storage import people_tables, tables  # noqa: F401  (each puts its tables into the metadata)
from backend.storage.columns import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite alters a table by building it anew
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
