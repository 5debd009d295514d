"""Bringing the database to the newest schema, at every start."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

from backend.storage.database import Database


def alembic_config(tx: Connection) -> Config:
    """Alembic's configuration, bound to an open transaction."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = tx
    return config


def upgrade(database: Database) -> None:
    """Run the migrations that are missing, all or none."""
    with database.write() as tx:
        command.upgrade(alembic_config(tx), "head")
