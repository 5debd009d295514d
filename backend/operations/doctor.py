"""What is wrong with an installation, and what to do: `groupscope doctor`.

Nothing is changed. The database is opened for reading only, also while a backend serves it.
"""

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from hashlib import file_digest, sha256
from importlib import metadata
from json import loads
from pathlib import Path
from typing import Literal

import httpx
from packaging.requirements import Requirement

from backend.bucket.bucket import IDS, Bucket, BucketTrouble
from backend.contract.client import ApiError, Client, Unreachable
from backend.contract.home import DATABASE, TOKEN, CannotStart, store_path, stored_token
from backend.operations.place import Place
from backend.storage.revision import REVISION, is_known

LITTLE_BYTES, FEW_BYTES = 5 * 2**30, 2**30  # free on the home's disk: worth a word, and too few to train
SKEW_SECONDS = 5.0
OPEN_FILES = 1024  # a limit below it refuses connections of a busy dashboard
EXTRAS = ("backend", "worker", "dashboard")
GPU = """
import torch
if torch.cuda.is_available():
    for n in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(n)
        print(f"{torch.cuda.get_device_name(n)}, {free / 2**30:.1f} of {total / 2**30:.1f} GiB free")
else:
    print("none" if torch.version.cuda is None else "unusable", torch.__version__)
"""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `advice` says what to do about what is not well."""

    state: Literal["ok", "note", "problem"]
    subject: str
    text: str
    advice: str = ""


@dataclass(frozen=True)
class Installation:
    """What is examined. `thorough` reads every byte of the database and of the files that it names.

    If the records do not lie in the home, they are left to the tools of their database.
    """

    connection: Place
    thorough: bool = False

    @property
    def home(self) -> Path:
        """The data directory."""
        return self.connection.home


def examine(installation: Installation) -> Iterator[Finding]:
    """Every finding, as soon as it is known."""
    files = () if installation.connection.database_url else (_files, _clock)
    for check in (_versions, _home, _disk, _database, *files, _bucket, _limits, _gpu, _backend):
        yield from check(installation)


def _versions(_: Installation) -> Iterator[Finding]:
    """Whether what is installed is what this version asks for."""
    yield Finding("ok", "versions", f"groupscope {metadata.version('groupscope')}, Python {sys.version.split()[0]}")
    missing: dict[str, list[str]] = {}
    for text in metadata.requires("groupscope") or ():
        wanted = Requirement(text)
        extra = next(
            (one for one in ("", *EXTRAS) if not wanted.marker or wanted.marker.evaluate({"extra": one})), None
        )
        if extra is None:
            continue
        try:
            found = metadata.version(wanted.name)
        except metadata.PackageNotFoundError:
            missing.setdefault(extra, []).append(wanted.name)
            continue
        if not wanted.specifier.contains(found, prereleases=True):
            text = f"{wanted.name} {found} is installed, and {wanted.specifier} is needed"
            yield Finding("problem", "versions", text, f"pip install '{wanted.name}{wanted.specifier}'")
    for extra, names in missing.items():
        text, advice = f"not installed: {', '.join(names)}", f"pip install 'groupscope[{extra}]'"
        yield Finding("note" if extra else "problem", "versions", text, advice)


def _home(installation: Installation) -> Iterator[Finding]:
    """Whether the data directory is there, one's own and nobody else's."""
    home = installation.home
    if not home.is_dir():
        yield Finding("problem", "home", f"{home} is not a directory", "name the data directory with --home")
        return
    if not os.access(home, os.R_OK | os.W_OK | os.X_OK):
        yield Finding("problem", "home", f"{home} cannot be written by this user", "run this as the user that owns it")
        return
    open_to = stat.S_IMODE(home.stat().st_mode) & 0o077
    if open_to:
        yield Finding("problem", "home", f"{home} can be read by other users of this machine", f"chmod 700 {home}")
    token = home / TOKEN
    if token.exists():
        try:
            stored_token(home)
        except CannotStart as error:
            yield Finding("problem", "token", str(error))
        if stat.S_IMODE(token.stat().st_mode) & 0o077:
            yield Finding("problem", "token", f"{token} can be read by other users", f"chmod 600 {token}")
    if not open_to:
        yield Finding("ok", "home", str(home))


def _disk(installation: Installation) -> Iterator[Finding]:
    """Whether there is room for checkpoints and records."""
    if not installation.home.is_dir():
        return
    usage = shutil.disk_usage(installation.home)
    text = f"{usage.free / 2**30:.1f} GiB free on the disk of {installation.home}"
    advice = "delete runs or checkpoints that nobody needs, or move the home to a larger disk"
    if usage.free < FEW_BYTES:
        yield Finding("problem", "disk", text, advice)
    elif usage.free < LITTLE_BYTES:
        yield Finding("note", "disk", text, advice)
    else:
        yield Finding("ok", "disk", text)


def _read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=10)


def _database(installation: Installation) -> Iterator[Finding]:
    """Whether the database can be opened, is of this version, and is intact; one outside the home is left to its own tools."""
    path = installation.home / DATABASE
    if installation.connection.database_url:
        yield Finding("note", "database", "GROUPSCOPE_DATABASE_URL names another one", "examine it with its own tools")
        return
    if not os.access(installation.home, os.X_OK):
        return  # said above
    if not path.is_file():
        if installation.home.is_dir():
            yield Finding("note", "database", f"{path} does not exist yet", "the backend makes it at its first start")
        return
    restore = "stop the backend, move the home away, and restore the newest backup: groupscope restore"
    try:
        with closing(_read_only(path)) as database:
            [(revision,)] = database.execute("select version_num from alembic_version")
            pragma = "integrity_check(5)" if installation.thorough else "quick_check(5)"
            damage = [row[0] for row in database.execute(f"PRAGMA {pragma}")]
            orphans = len(database.execute("PRAGMA foreign_key_check").fetchmany(1000))
    except (sqlite3.Error, ValueError) as error:
        yield Finding("problem", "database", f"{path} cannot be read: {error}", restore)
        return
    if not is_known(revision):
        text = f"{path} was made by a newer version of groupscope (revision {revision})"
        yield Finding("problem", "database", text, "install that version again, or a newer one")
    elif damage != ["ok"]:
        yield Finding("problem", "database", f"{path} is damaged: {'; '.join(damage)[:300]}", restore)
    elif orphans:
        yield Finding("problem", "database", f"{path} has {orphans} rows whose parent is missing", restore)
    else:
        size = path.stat().st_size / 2**20
        old = "" if int(revision) == REVISION else f", brought up to {REVISION:04} when the backend starts"
        yield Finding("ok", "database", f"{size:,.1f} MiB, revision {revision}{old}, intact")


def _files(installation: Installation) -> Iterator[Finding]:
    """Whether the files that the database names are there and whole."""
    home = installation.home
    try:
        with closing(_read_only(installation.home / DATABASE)) as database:
            uploads = database.execute("select id, size_bytes, sha256 from upload").fetchall()
            traces = database.execute("select path, size_bytes, sha256 from trace_file").fetchall()
            checkpoints = database.execute("select store, path, sha256 from checkpoint").fetchall()
    except sqlite3.Error:
        return  # said above
    wanted = [(home / f"uploads/{one}.jsonl", size, sha) for one, size, sha in uploads]
    wanted += [(home / "traces" / path, size, sha) for path, size, sha in traces]
    damaged = [str(path) for path, size, sha in wanted if not _as_recorded(path, size, sha, installation.thorough)]
    root = (home / "checkpoints").resolve()
    ours = [(root / path, sha) for store, path, sha in checkpoints if store_path(store).resolve() == root]
    damaged += [str(path) for path, sha in ours if not _whole(path, sha, installation.thorough)]
    if damaged:
        more = f" and {len(damaged) - 3} more" if len(damaged) > 3 else ""
        advice = "copy them from a backup; a run goes on from an earlier checkpoint, and says so"
        yield Finding("problem", "files", f"missing or damaged: {', '.join(damaged[:3])}{more}", advice)
    else:
        yield Finding("ok", "files", f"{len(uploads)} uploads, {len(traces)} token traces, {len(ours)} checkpoints")


def _as_recorded(path: Path, size: int, sha: str, thorough: bool) -> bool:
    try:
        if path.stat().st_size != size:
            return False
        with path.open("rb") as file:
            return not thorough or file_digest(file, "sha256").hexdigest() == sha
    except OSError:
        return False


def _whole(folder: Path, sha: str, thorough: bool) -> bool:
    """Whether a checkpoint's manifest is the recorded one, and its files are as the manifest says."""
    try:
        manifest = (folder / "manifest.json").read_bytes()
        files = loads(manifest)["files"].items()
    except (OSError, ValueError, KeyError):
        return False
    same = sha256(manifest).hexdigest() == sha
    return same and all(_as_recorded(folder / name, one["size"], one["sha256"], thorough) for name, one in files)


def _bucket(installation: Installation) -> Iterator[Finding]:
    """Whether the bucket of checkpoints answers, if there is one."""
    if (address := installation.connection.checkpoints) is None:
        return
    try:
        used = Bucket(address).keys(IDS)
    except BucketTrouble as trouble:
        advice = "see that its server runs, and mend GROUPSCOPE_CHECKPOINTS or AWS_* in the environment"
        yield Finding("problem", "bucket", str(trouble), advice)
    else:
        yield Finding(
            "ok" if used else "note", "bucket", f"{address} answers" + ("" if used else "; no worker has used it")
        )


def _clock(installation: Installation) -> Iterator[Finding]:
    """Whether anything was recorded in the future: then this machine's clock was set back."""
    try:
        with closing(_read_only(installation.home / DATABASE)) as database:
            newest = database.execute("select max(created_at) from run").fetchone()[0]
    except sqlite3.Error:
        return
    if newest is None:
        return
    ahead = (datetime.fromisoformat(newest).replace(tzinfo=UTC) - datetime.now(UTC)).total_seconds()
    if ahead > SKEW_SECONDS:
        advice = "set this machine's clock, best by NTP; leases hold all the same, times on the pages are wrong"
        yield Finding("problem", "clock", f"the newest run was created {ahead:,.0f} s in the future", advice)


def _limits(_: Installation) -> Iterator[Finding]:
    """Whether processes may open enough files."""
    import resource

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < OPEN_FILES:
        advice = f"raise the hard limit: ulimit -Hn {OPEN_FILES * 4}"
        yield Finding("problem", "limits", f"a process may open {hard} files at most", advice)


def _gpu(_: Installation) -> Iterator[Finding]:
    """Whether a worker on this machine would train on a GPU. torch is asked in a process of its own: it may hang."""
    driver = shutil.which("nvidia-smi")
    try:
        asked = subprocess.run([sys.executable, "-c", GPU], capture_output=True, text=True, timeout=120, check=False)
        said = asked.stdout.strip()
    except subprocess.TimeoutExpired:
        advice = "run nvidia-smi; restart the machine if it hangs"
        yield Finding("problem", "gpu", "torch did not answer within 120 s", advice)
        return
    if asked.returncode != 0:
        last = (asked.stderr.strip().splitlines() or ["no reason given"])[-1]
        if "No module named 'torch'" in last:
            yield Finding("note", "gpu", "no worker is installed here", "pip install 'groupscope[worker]'")
        else:
            advice = "install it again: pip install --force-reinstall torch"
            yield Finding("problem", "gpu", f"torch fails: {last}", advice)
    elif said.startswith(("none", "unusable")) and driver:
        text = f"this machine has an NVIDIA driver, and torch {said.split()[1]} cannot use it"
        advice = "install a CUDA build of torch that fits the driver (nvidia-smi says which CUDA it has)"
        yield Finding("problem", "gpu", text, advice)
    elif said.startswith(("none", "unusable")):
        yield Finding("ok", "gpu", f"none: workers here train on the CPU (torch {said.split()[1]})")
    else:
        yield Finding("ok", "gpu", said.replace("\n", "; "))


def _backend(installation: Installation) -> Iterator[Finding]:
    """Whether a backend answers, takes the token, and agrees about the time."""
    url, token = installation.connection.backend_url, installation.connection.known_token()
    if token is None:
        yield Finding("problem", "token", "there is none to show", "set GROUPSCOPE_TOKEN, or name the home with --home")
    try:
        health = httpx.get(f"{url}/healthz", timeout=5)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        advice = "start it: groupscope up; or set GROUPSCOPE_BACKEND_URL"
        yield Finding("problem", "backend", f"nothing answers at {url}: {error}", advice)
        return
    if health.status_code != 200 or health.text.strip() != '{"status":"ok"}':
        text = f"{url} is answered by another program (HTTP {health.status_code})"
        yield Finding("problem", "backend", text, "set GROUPSCOPE_BACKEND_URL, or stop that program")
        return
    if token is None:
        yield Finding("ok", "backend", f"{url} answers")
        return
    try:
        with Client(url, token, timeout=5) as client:
            alive = sum(worker.alive for worker in client.workers())
    except (ApiError, Unreachable) as error:
        advice = "show the one of the backend's home: --home, or GROUPSCOPE_TOKEN"
        refused = isinstance(error, ApiError) and error.status == 401
        yield Finding("problem", "backend", f"{url}: {error}", advice if refused else "the backend's log says why")
    else:
        yield Finding("ok", "backend", f"{url} answers")
        yield Finding("ok" if alive else "note", "workers", f"{alive} alive", "" if alive else "groupscope worker")
    skew = abs(parsedate_to_datetime(health.headers["date"]).timestamp() - time.time())
    if skew > SKEW_SECONDS:
        text = f"the clocks of this machine and of the backend are {skew:,.0f} s apart"
        advice = "set both, best by NTP; leases hold all the same, times on the pages are wrong"
        yield Finding("problem", "clock", text, advice)


def report(installation: Installation, say: Callable[[str], None]) -> bool:
    """Say every finding; whether all is well."""
    well = True
    for finding in examine(installation):
        well = well and finding.state != "problem"
        mark = {"ok": "ok     ", "note": "note   ", "problem": "PROBLEM"}[finding.state]
        say(f"{mark}  {finding.subject:<9} {finding.text}" + (f"\n{'':20}→ {finding.advice}" if finding.advice else ""))
    return well
