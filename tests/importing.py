"""What tests of `groupscope import` do: import a path into a backend, and read the run back."""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from serving import Backend

from backend.contract.client import Client
from backend.contract.groups import Group
from backend.contract.records import Run as Recorded
from groupscope.files.catalog import FORMATS
from groupscope.files.delivery import Labels
from groupscope.files.format import Format, Options, Run
from groupscope.files.importer import Importer

FOREIGN = Path(
    os.environ.get("GROUPSCOPE_TEST_FOREIGN") or Path(__file__).parent / "scripts" / "foreign"
)  # make test-formats has newer ones


def imports(client: Client, path: Path, said: list[str], **options: Any) -> Importer:
    """The import of a path, whose lines are put into `said`."""
    only: Format | None = options.pop("only", None)
    from_step: int | None = options.pop("from_step", None)
    labels = Labels(options.pop("name", None), options.pop("tags", ()))
    return Importer(
        client, path, options=Options(**options), labels=labels, only=only, from_step=from_step, say=said.append
    )


def imported(backend: Backend, path: Path, **options: Any) -> tuple[Recorded, list[str]]:
    """The newest recorded run after an import of a path, and what was said."""
    said: list[str] = []
    imports(backend.client, path, said, **options).once()
    return backend.client.runs(kind="recorded").items[0], said


def recorded(backend: Backend) -> Recorded:
    """The one recorded run of a backend."""
    [run] = backend.client.runs(kind="recorded").items
    return run


def steps_of(backend: Backend) -> int:
    """The steps that the furthest of the recorded runs has."""
    return max((run.progress.step for run in backend.client.runs(kind="recorded").items), default=0)


def opened(name: str, path: Path) -> Run:
    """A path as the format of this name reads it."""
    [format_] = [one for one in FORMATS if one.name == name]
    return format_.open(path, Options())


def groups_of(backend: Backend, run_id: int, step: int) -> Sequence[Group]:
    """The groups of a step, in their order."""
    found = backend.client.groups(run_id, step=step, sort="index", limit=200).items
    return [backend.client.group(one.id) for one in found]


@contextmanager
def following(client: Client, path: Path, said: list[str]) -> Iterator[None]:
    """The path is followed in a thread."""
    over = threading.Event()
    thread = threading.Thread(target=imports(client, path, said).follow, args=[over.is_set])
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
