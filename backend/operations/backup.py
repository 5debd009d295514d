"""A backup of a home that is in use: the database as it was at one moment, and every file that it names.

The archive is a tar file. Its last member is a manifest with the size and SHA-256 of every other one, so that an archive
that was cut off is never taken for a whole one:

    groupscope.db                 a consistent copy; reports that were acknowledged before the backup began are in it
    token, .env                   what clients must show, and the settings
    uploads/ traces/ checkpoints/ the files that the database names
    rewards/                      a person's own reward functions, and what lies beside them
    manifest.json

Unsent reports of a worker (its spool), converted models and logs are not in it: a run that was training goes on from
its last checkpoint, as it does after the loss of a worker.
"""

import hashlib
import io
import json
import os
import shutil
import sqlite3
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from backend.contract.home import DATABASE, OWN_REWARDS, SETTINGS, TOKEN, CannotStart, store_path

MANIFEST = "manifest.json"
STORE_ID = PurePosixPath("checkpoints/store-id")
FOLDERS = ("uploads", "traces", "checkpoints", OWN_REWARDS)
MOMENTS = 20  # snapshots to try until one has all its checkpoints
PAGES = 4096  # of the database, copied between two progress messages
CHUNK = 2**20
SPARE_BYTES = 64 * 2**20
SECONDS_BETWEEN_WORDS = 2.0


class CannotBackUp(CannotStart):
    """The backup or its restoration cannot be made: the message says why, and what to do."""


@dataclass(frozen=True)
class BackedUp:
    """What an archive holds. `vanished` names files that were deleted while the backup was made."""

    files: int
    size_bytes: int
    runs: int
    vanished: tuple[str, ...] = ()


class Progress:
    """Says how far a long copy is, every few seconds."""

    def __init__(self, say: Callable[[str], None], what: str, total_bytes: int) -> None:
        self._say, self._what, self._total = say, what, total_bytes
        self._done = 0
        self._said_at = time.monotonic()

    def add(self, count: int) -> None:
        """Count bytes that were copied."""
        self._done += count
        if time.monotonic() - self._said_at >= SECONDS_BETWEEN_WORDS:
            self._said_at = time.monotonic()
            self._say(f"{self._what}: {self._done / 2**20:,.0f} of {self._total / 2**20:,.0f} MiB")


def back_up(home: Path, output: Path, say: Callable[[str], None]) -> BackedUp:
    """Write the archive `output` of the home. Raises CannotBackUp."""
    source = home / DATABASE
    if not source.is_file():
        raise CannotBackUp(f"{source} does not exist: name the data directory with --home")
    if output.exists():
        raise CannotBackUp(f"{output} exists already: name another file, or move it away")
    with (
        tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.absolute().parent) as scratch,
        holding(home / "checkpoints") as held,
    ):
        _require_room(Path(scratch), source.stat().st_size)
        copy = Path(scratch) / DATABASE
        _copy_database(source, copy, say, lambda live: hold(home / "checkpoints", _checkpoints(live, home), held))
        with closing(sqlite3.connect(copy)) as database:
            # what is held is read where it is held: its run may have removed it meanwhile
            held_files = {name: held / name.removeprefix("checkpoints/") for name in _files_of(held, ".", deep=True)}
            files = {name: home / name for name in _named_files(database, home)} | held_files
            # the names in the manifests are never opened, since a manifest may name any file of this machine
            promised = {
                f"checkpoints/{folder}/{name}"
                for folder in _checkpoints(database, home)
                for name in (MANIFEST, *listed(home / "checkpoints" / folder))
            }
            runs = int(_value(database, "select count(*) from run"))
        total = copy.stat().st_size + sum(map(_size, files.values()))
        _require_room(Path(scratch), total)
        partial = Path(scratch) / "archive.tar"
        written = _write_archive(partial, {DATABASE: copy, **files}, Progress(say, "files", total))
        vanished = tuple(sorted((files.keys() | promised) - written.keys()))
        os.replace(partial, output)
    size = sum(size for size, _ in written.values())
    return BackedUp(len(written), size, runs, vanished)


def _copy_database(
    source: Path, copy: Path, say: Callable[[str], None], hold_files: Callable[[sqlite3.Connection], bool]
) -> None:
    """One moment of a database that others write to; they do not wait.

    The transaction is opened first: without it, SQLite begins anew whenever somebody commits between two steps. What
    `hold_files` could not hold of that moment was just removed: then a later moment is tried.
    """
    try:
        with (
            closing(sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None)) as live,
            closing(sqlite3.connect(copy)) as target,
        ):
            os.chmod(copy, 0o600)
            live.execute("BEGIN")
            for _ in range(MOMENTS):
                if hold_files(live):
                    break
                live.execute("ROLLBACK")
                live.execute("BEGIN")
            live.execute("SELECT count(*) FROM sqlite_master").fetchone()
            page_bytes = int(_value(live, "PRAGMA page_size"))
            progress = Progress(say, "database", page_bytes * int(_value(live, "PRAGMA page_count")))
            left = 0

            def count(_status: int, remaining: int, total: int) -> None:
                nonlocal left
                progress.add(page_bytes * ((left or total) - remaining))
                left = remaining

            live.backup(target, pages=PAGES, progress=count)
            damage = _value(target, "PRAGMA quick_check(1)")
    except sqlite3.Error as error:
        raise CannotBackUp(f"{source} cannot be copied: {error}. `groupscope doctor` says what is wrong") from error
    if damage != "ok":
        text = f"{source} is damaged ({damage}): restore the newest backup, or try SQLite's own `.recover` on a copy"
        raise CannotBackUp(text)


def _named_files(database: sqlite3.Connection, home: Path) -> Iterator[str]:
    """The files that the database names and this home holds, relative to it."""
    for (upload,) in database.execute("SELECT id FROM upload ORDER BY id"):
        yield f"uploads/{upload}.jsonl"
    for (trace,) in database.execute("SELECT path FROM trace_file ORDER BY path"):
        yield f"traces/{trace}"
    for name in (TOKEN, SETTINGS, str(STORE_ID)):
        if (home / name).is_file():
            yield name
    yield from _files_of(home / OWN_REWARDS, ".", deep=False, name=OWN_REWARDS)
    for (run,) in database.execute("SELECT id FROM run ORDER BY id"):  # what lies beside them: pairs of preferences
        yield from _files_of(home / "checkpoints", f"run-{run}", deep=False)
    for folder in _checkpoints(database, home):
        yield from _files_of(home / "checkpoints", folder, deep=True)


def _checkpoints(database: sqlite3.Connection, home: Path) -> list[str]:
    """The checkpoints that lie in this home, relative to its store."""
    root = (home / "checkpoints").resolve()
    rows = database.execute("SELECT store, path FROM checkpoint ORDER BY path").fetchall()
    ours = (path for store, path in rows if store_path(store).resolve() == root)
    return [path for path in ours if (root / path).resolve().is_relative_to(root)]


def _files_of(store: Path, folder: str, *, deep: bool, name: str = "checkpoints") -> Iterator[str]:
    place = store / folder
    found: list[Path] = []
    with suppress(FileNotFoundError):  # removed in this moment: its files are named as missing, or none of it is taken
        found += place.rglob("*") if deep else place.glob("*")
    for path in sorted(found):
        if path.is_file() and not path.is_symlink() and not path.name.startswith("."):
            yield f"{name}/{path.relative_to(store).as_posix()}"


def _write_archive(archive: Path, files: Mapping[str, Path], progress: Progress) -> dict[str, tuple[int, str]]:
    """Write the files by their names, and the manifest; the size and hash of each file that was still there."""
    written: dict[str, tuple[int, str]] = {}
    with _private(archive) as sink, tarfile.open(fileobj=sink, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, path in files.items():
            try:
                file = path.open("rb")
            except FileNotFoundError:
                continue  # its run was deleted since the database was copied
            with file:
                reader = _Hashing(file, progress)
                member = tarfile.TarInfo(name)
                member.size, member.mode = os.fstat(file.fileno()).st_size, 0o600
                tar.addfile(member, reader)
                written[name] = member.size, reader.digest.hexdigest()
        manifest = json.dumps(
            {"format": 1, "files": {name: {"size": size, "sha256": sha} for name, (size, sha) in written.items()}}
        ).encode()
        member = tarfile.TarInfo(MANIFEST)
        member.size, member.mode = len(manifest), 0o600
        tar.addfile(member, io.BytesIO(manifest))
    return written


class _Hashing(io.RawIOBase):
    """A file that is hashed while it is read."""

    def __init__(self, file: IO[bytes], progress: Progress) -> None:
        self._file, self._progress = file, progress
        self.digest = hashlib.sha256()

    def read(self, size: int = -1, /) -> bytes:
        data = self._file.read(size)
        self.digest.update(data)
        self._progress.add(len(data))
        return data


def restore(archive: Path, home: Path, say: Callable[[str], None]) -> BackedUp:
    """Make the home that an archive holds. Nothing is put there unless all of it is whole. Raises CannotBackUp."""
    if home.exists() and (not home.is_dir() or any(part.name != "lost+found" for part in home.iterdir())):
        raise CannotBackUp(f"{home} exists and is not empty: move it away, or name another directory with --home")
    home.absolute().parent.mkdir(parents=True, exist_ok=True)
    there = home.exists()  # perhaps a disk of its own, with its `lost+found`, or a link: nothing can take its place
    beside = home if there else home.absolute().parent  # on the home's disk; it is gone afterwards, or became the home
    with tempfile.TemporaryDirectory(prefix=".restoring.", dir=beside, ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        _require_room(scratch, archive.stat().st_size)
        written = _unpack(archive, scratch, Progress(say, "restored", archive.stat().st_size))
        try:
            runs = _settle(scratch, home)
        except sqlite3.Error as error:
            text = f"the database in {archive} is not a Groupscope database, or is damaged: {error}"
            raise CannotBackUp(text) from error
        for name in FOLDERS:
            (scratch / name).mkdir(exist_ok=True, mode=0o700)
        if not there:
            os.replace(scratch, home)
        else:
            # without it, the directory is not a home
            for part in sorted(scratch.iterdir(), key=lambda part: part.name == DATABASE):
                os.replace(part, home / part.name)
    return BackedUp(len(written), sum(size for size, _ in written.values()), runs)


def _unpack(archive: Path, folder: Path, progress: Progress) -> dict[str, tuple[int, str]]:
    """Write the members, each of which must be as the manifest says. What they say of their sizes must fit into the archive."""
    found: dict[str, tuple[int, str]] = {}
    left = archive.stat().st_size
    manifest: bytes | None = None
    try:
        with tarfile.open(archive, "r:") as tar:
            for member in tar:
                content = tar.extractfile(member) if member.isreg() else None
                left -= member.size
                if content is None or member.issparse() or not _expected(member.name):
                    raise CannotBackUp(f"{archive} is not a backup made by groupscope: it holds {member.name!r}")
                if left < 0:
                    text = f"{archive} was cut off, or damaged: {member.name!r} would be larger than the archive"
                    raise CannotBackUp(text)
                if member.name == MANIFEST:
                    manifest = content.read()
                    continue
                reader = _Hashing(content, progress)
                with _private(folder / member.name) as target:
                    shutil.copyfileobj(reader, target, CHUNK)
                found[member.name] = member.size, reader.digest.hexdigest()
    except (tarfile.TarError, EOFError, MemoryError, OverflowError) as error:  # a header may say any size
        raise CannotBackUp(f"{archive} cannot be read as a backup: {str(error) or 'a header is too large'}") from error
    if manifest is None:
        raise CannotBackUp(f"{archive} has no end: the backup was cut off while it was made or copied")
    try:
        files = {name: (one["size"], one["sha256"]) for name, one in json.loads(manifest)["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise CannotBackUp(f"{archive} is not a backup made by groupscope: its manifest cannot be read") from None
    if found != files:
        wrong = sorted(name for name in found.keys() | files.keys() if found.get(name) != files.get(name))
        raise CannotBackUp(f"{archive} is damaged: {', '.join(wrong[:5])} differ from its manifest")
    if DATABASE not in found:
        raise CannotBackUp(f"{archive} is not a backup made by groupscope: it holds no {DATABASE}")
    return found


def _expected(name: str) -> bool:
    """Whether a member is one that a backup has; never a path that leads out of the home."""
    path = PurePosixPath(name)
    if name in (DATABASE, MANIFEST, TOKEN, SETTINGS):
        return True
    return len(path.parts) > 1 and path.parts[0] in FOLDERS and ".." not in path.parts and str(path) == name


def _settle(folder: Path, home: Path) -> int:
    """Check the database, and set where its checkpoints lie now; the number of its runs."""
    with closing(sqlite3.connect(folder / DATABASE)) as database:
        damage = _value(database, "PRAGMA quick_check(1)")
        if damage != "ok":
            raise CannotBackUp(f"the database in the backup is damaged: {damage}")
        label = folder / STORE_ID
        if label.is_file():
            mark = f"#{label.read_text().strip()}"
            here = f"{home.resolve() / 'checkpoints'}{mark}"
            for table in ("run", "checkpoint"):
                database.execute(
                    f"UPDATE {table} SET store = ? WHERE store LIKE ? ESCAPE '!'",  # noqa: S608 — constants; values are bound
                    (here, f"%{mark}"),
                )
            database.commit()
        return int(_value(database, "select count(*) from run"))


def _value(database: sqlite3.Connection, query: str) -> str | int:
    row = database.execute(query).fetchone()
    return row[0] if row else ""


@contextmanager
def _private(path: Path) -> Iterator[IO[bytes]]:
    """A new file that its owner alone can read, forced to the disk when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _require_room(folder: Path, wanted: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < wanted + SPARE_BYTES:
        raise CannotBackUp(
            f"{folder.parent} has {free / 2**20:,.0f} MiB free and this needs {wanted / 2**20:,.0f} MiB: "
            "free some space, or name a file on another disk"
        )


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
