"""Checkpoints held for a backup: hard links, so that what a run removes meanwhile is still read."""

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MANIFEST = "manifest.json"


@contextmanager
def holding(store: Path) -> Iterator[Path]:
    """A folder in the store for links, which goes afterwards; so does what a backup left that was killed."""
    for left in store.glob(".backup-*"):
        if not _lives(left.name.rpartition("-")[2]):
            shutil.rmtree(left, ignore_errors=True)
    folder = store / f".backup-{os.getpid()}"
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def hold(store: Path, paths: Iterable[str], folder: Path) -> bool:
    """Link every file of these checkpoints into the folder; whether none of them was removed meanwhile.

    Where the disk has no links, or the store cannot be written, the files themselves will be read.
    """
    shutil.rmtree(folder, ignore_errors=True)
    whole = True
    for path in paths:
        try:
            shutil.copytree(store / path, folder / path, copy_function=os.link, symlinks=True)
        except (shutil.Error, OSError):
            shutil.rmtree(folder / path, ignore_errors=True)
            whole = whole and (store / path).is_dir()
        else:
            whole = whole and all(os.path.isfile(folder / path / name) for name in listed(folder / path))
    return whole


def listed(checkpoint: Path) -> list[str]:
    """The files of a checkpoint by its own manifest; none if that is gone or damaged."""
    try:
        return [str(name) for name in json.loads((checkpoint / MANIFEST).read_bytes())["files"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []


def _lives(process: str) -> bool:
    with suppress(PermissionError):  # another user's
        try:
            os.kill(int(process), 0)
        except (ValueError, ProcessLookupError):
            return False
    return True
