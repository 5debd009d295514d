"""A fixture of tests that upload files."""

from collections.abc import Callable
from pathlib import Path

import pytest

from backend.uploads import conversion, store


@pytest.fixture
def read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read in the backend's process, without the two tenths of a second that one for each takes.

    test_hostile_files.py and test_bounds.py have them read as they are.
    """

    def convert(
        source: Path, suffix: str, target: Path, *, most_bytes: int, on_rows: Callable[[int], None] = lambda rows: None
    ) -> conversion.Contents:
        return conversion.canonical(source, suffix, target, most_bytes, on_rows)

    monkeypatch.setattr(store, "convert", convert)
