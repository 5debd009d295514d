"""The revision of the schema; `groupscope doctor` reads it on machines that have no database library."""

import re

REVISION = 22
"""Raise it when a table gains something. Data to derive from older data is a step in `migrate.py`."""


def is_known(found: str) -> bool:
    """Whether this version of the program can open a database of the revision, as `alembic_version` spells it ("0017")."""
    return re.fullmatch(r"[0-9]{4}", found) is not None and 0 < int(found) <= REVISION
