"""Where checkpoints lie: a folder, and behind it, if the operator named one, a bucket that every worker reaches.

Without a bucket the folder is the store. With one it holds copies: what is saved is written there and then uploaded, what a run
needs is fetched there first, and what was used longest ago makes room.
"""

import fcntl
import json
import logging
import os
import random
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from backend.bucket.bucket import MANIFEST, Bucket, BucketTrouble, Damaged
from worker.checkpoint import NAME, damage, describe, remove_checkpoints, remove_unfinished
from worker.errors import RunFailure
from worker.rollout.engine import quiet
from worker.settings import Settings

log = logging.getLogger(__name__)

T = TypeVar("T")
Show = Callable[[str, int, int], None]
"""Gets a phase, what is done of it and the total, in MiB; raises to end what it is shown."""

_LOOK_SECONDS = 0.2
_LONGEST_PAUSE = 60.0
_IN_USE_SECONDS = 900.0  # what was fetched, or saved, within them may still be read by somebody
_TRIES = 2  # what was damaged on its way is not damaged in the bucket
_MIB = 2**20


@dataclass(frozen=True)
class Store:
    """A folder of checkpoints, with a bucket behind it or without; `most_bytes` bounds the folder if there is one."""

    folder: Path
    bucket: Bucket | None = None
    most_bytes: int = 0

    def fetch(self, path: str, sha256: str | None, *, part: str = "", show: Show = quiet) -> str | None:
        """Have a checkpoint in the folder, or the part of it whose files begin so; what is wrong with it in words, or None if it is whole.

        A bucket that is away is waited for; `show` may end that. Raises RunFailure if it refuses.
        """
        folder = self.folder / path
        if (bucket := self.bucket) is None:
            return damage(folder, sha256, part=part)
        with suppress(FileNotFoundError):
            os.utime(folder)  # before it is looked at: from now on it makes room for nothing
        for tried in range(_TRIES + 1):
            wrong = damage(folder, sha256, part=part)
            if wrong is None or tried == _TRIES:
                break
            self.make_room()  # not afterwards: a fetch may take longer than what the run fetched before it counts as in use
            try:
                with _alone(folder, show):  # one process of this machine fetches it for all
                    _patiently(lambda: self._download(bucket, path, sha256, part, show), show)
            except Damaged as damaged:
                return str(damaged)
        return wrong

    def has(self, path: str) -> bool:
        """Whether all files of a checkpoint are here, by their sizes: a process beside this one has compared the hashes."""
        try:
            files = json.loads((self.folder / path / MANIFEST).read_bytes())["files"]
            return all((self.folder / path / name).stat().st_size == one["size"] for name, one in files.items())
        except FileNotFoundError:
            return False

    def _download(self, bucket: Bucket, path: str, sha256: str | None, part: str, show: Show) -> None:
        """The files that the folder lacks. Raises Damaged, BucketTrouble."""
        folder, manifest = self.folder / path, bucket.manifest(path, sha256)
        try:
            files = {name: one for name, one in json.loads(manifest)["files"].items() if name.startswith(part)}
            lacking = [name for name, one in files.items() if not _is_as(folder / name, one)]
            done, total = 0, sum(files[name]["size"] for name in lacking) // _MIB
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Damaged(f"{MANIFEST} in the bucket is not a manifest") from None
        for name in lacking:
            file = folder / name
            if not file.resolve().is_relative_to(folder.resolve()):
                raise Damaged(f"{MANIFEST} names the file {name!r:.200}")
            file.parent.mkdir(parents=True, exist_ok=True)
            partial = file.with_name(f".{file.name}.partial")
            try:
                with partial.open("wb") as sink:
                    for chunk in bucket.chunks(f"{path}/{name}"):
                        sink.write(chunk)
                        done += len(chunk)
                        show("fetch", done // _MIB, total)
            except FileNotFoundError:
                raise Damaged(f"{name} is not in the bucket") from None
            os.replace(partial, file)
        (folder / MANIFEST).write_bytes(manifest)

    def upload(self, folder: Path, uploaded: set[str], on_bytes: Callable[[int], None]) -> None:
        """Put a whole checkpoint into the bucket, except what was `uploaded` before, its manifest last. Raises BucketTrouble."""
        assert self.bucket is not None  # noqa: S101 — without one nothing is uploaded
        for name in [*json.loads((folder / MANIFEST).read_bytes())["files"], MANIFEST]:
            if name not in uploaded:
                self.bucket.put(f"{folder.relative_to(self.folder)}/{name}", folder / name, on_bytes)
                uploaded.add(name)

    def share(self, file: Path, show: Show) -> None:
        """Put a file into the bucket, if there is one, that lies beside a run's checkpoints."""
        if (bucket := self.bucket) is not None:
            _patiently(lambda: bucket.put(str(file.relative_to(self.folder)), file), show)

    def find(self, file: Path, show: Show) -> None:
        """Have such a file in the folder, if any worker shared one."""
        if (bucket := self.bucket) is None:
            return
        with suppress(FileNotFoundError):
            content = _patiently(lambda: bucket.read(str(file.relative_to(self.folder))), show)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)

    def remove(self, run_id: int, kept: Collection[str], *, upto: tuple[int, int]) -> None:
        """Remove a run's checkpoints up to an attempt and a step, except those `kept`, here and in the bucket.

        What the bucket does not remove now is looked for again beside the next one.
        """
        remove_checkpoints(self.folder / f"run-{run_id}", kept, upto=upto)
        self._remove(run_id, lambda path, number, _: number <= upto and path not in kept)

    def remove_unfinished(self, run_id: int, *, before: int) -> None:
        """Remove what a run's attempts before this one were writing, or uploading, when they ended."""
        remove_unfinished(self.folder / f"run-{run_id}", before=before)
        self._remove(run_id, lambda _, number, whole: number[0] < before and not whole)

    def _remove(self, run_id: int, goes: Callable[[str, tuple[int, int], bool], bool]) -> None:
        """Remove from the bucket what `goes` of a run's checkpoints, by the path, the attempt and the step, and whether there is a manifest."""
        if self.bucket is None:
            return
        try:
            keys = self.bucket.keys(f"run-{run_id}")
            for path in sorted({"/".join(key.split("/")[:2]) for key in keys}):
                named = NAME.fullmatch(path.partition("/")[2])
                if named and goes(path, (int(named[2]), int(named[1])), f"{path}/{MANIFEST}" in keys):
                    self.bucket.remove(path)
        except BucketTrouble as trouble:
            log.warning("run %s: what is to be removed stays for now: %s", run_id, trouble)

    def make_room(self) -> None:
        """Remove the copies that were used longest ago, until there are no more than may be. What waits to be uploaded stays."""
        found = sorted(filter(None, map(_use_and_size, self.folder.glob("run-*/step-*"))))
        over = sum(size for _, size, _ in found) - self.most_bytes
        for used, size, folder in found:
            if over <= 0 or time.time() - used < _IN_USE_SECONDS:
                return
            with suppress(FileNotFoundError), _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB) as free:
                if free and folder.stat().st_mtime == used:
                    removed = folder.with_name(f".{folder.name}.removed")
                    os.replace(folder, removed)
                    shutil.rmtree(removed, ignore_errors=True)
                    over -= size

    @contextmanager
    def held(self, folder: Path) -> Iterator[None]:
        """A checkpoint that no process may remove to make room."""
        with _locked(folder, fcntl.LOCK_SH):
            yield


def store_of(settings: Settings) -> Store:
    """Where the checkpoints lie that a worker reaches."""
    bucket = None if settings.checkpoints is None else Bucket(settings.checkpoints)
    return Store(settings.store, bucket, settings.checkpoint_copies_bytes)


def pauses() -> Iterator[float]:
    """Seconds until a bucket is asked again, longer each time."""
    seconds = 1.0
    while True:
        yield seconds * random.uniform(0.5, 1.0)
        seconds = min(_LONGEST_PAUSE, seconds * 2)


def _patiently(action: Callable[[], T], show: Show) -> T:
    """What `action` returns once the bucket answers. Raises RunFailure if it refuses."""
    for pause in pauses():
        try:
            return action()
        except BucketTrouble as trouble:
            if not trouble.away:
                raise RunFailure(
                    "bucket_refused", f"The bucket of checkpoints refused a request: {trouble}"
                ) from trouble
            log.warning("%s; asking again", trouble)
        until = time.monotonic() + pause
        while time.monotonic() < until:
            show("bucket", 0, 0)
            time.sleep(_LOOK_SECONDS)
    raise AssertionError("pauses do not end")


def _use_and_size(folder: Path) -> tuple[float, int, Path] | None:
    """When a copy was used last, and its bytes; None if another worker removes it in this moment."""
    try:
        return folder.stat().st_mtime, sum(one.stat().st_size for one in folder.rglob("*")), folder
    except FileNotFoundError:
        return None


def _is_as(file: Path, described: dict[str, str | int]) -> bool:
    try:
        return file.stat().st_size == described["size"] and describe(file) == described
    except FileNotFoundError:
        return False


@contextmanager
def _alone(folder: Path, show: Show) -> Iterator[None]:
    """The one process of this machine that fetches into a folder; others wait."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB) as mine:
            if mine:
                yield
                return
        show("fetch", 0, 0)
        time.sleep(_LOOK_SECONDS)


@contextmanager
def _locked(folder: Path, how: int) -> Iterator[bool]:
    """A folder under the kernel's lock, which goes with this process; whether it was to be had."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, how)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)
