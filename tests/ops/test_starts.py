"""A start that cannot go on says why in one line, with what to do, and ends with an exit code that is not zero."""

import errno
import fcntl
import os
import socket
import sqlite3
import stat
import subprocess
from contextlib import closing
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import NoReturn

import pytest
import zygote
from processes import Site, free_port
from serving import empty_database

from backend.app import create_app, open_services
from backend.auth import Gate, token_of
from backend.clock import Clock
from backend.contract.connection import Connection
from backend.contract.home import CannotStart, alone, load, make_private, stored_token
from backend.settings import Settings
from backend.storage import opening

TRACEBACK = "Traceback (most recent call last)"


NOT_A_DATABASE = "hello " * 2000


def damage(file: Path, how: str) -> None:
    if how in ("newer", "another program's"):
        if how == "another program's":
            file.unlink()
        statement = (
            "CREATE TABLE theirs (x)" if how == "another program's" else "UPDATE alembic_version SET version_num = 9999"
        )
        with closing(sqlite3.connect(file, isolation_level=None)) as database:
            database.execute(statement)
    elif how == "truncated":
        os.truncate(file, 5000)
    elif how == "not a database":
        file.write_text(NOT_A_DATABASE)
    elif how == "a damaged page":
        with file.open("r+b") as pages:
            pages.seek(4096 * 3)
            pages.write(os.urandom(4096))
    else:
        file.unlink()
        file.mkdir()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("newer", "newer Groupscope"),
        ("truncated", "database"),
        ("not a database", "not a database"),
        ("another program's", "another program"),
        ("a damaged page", "damaged"),
        ("a folder", "unable to open"),
    ],
)
def test_a_database_that_cannot_be_served_is_refused_in_words_and_left_as_it_was(
    tmp_path: Path, how: str, words: str
) -> None:
    file = tmp_path / "groupscope.db"
    file.write_bytes(empty_database())
    damage(file, how)
    before = file.read_bytes() if file.is_file() else None
    with pytest.raises(CannotStart, match=words) as refused:
        open_services(Settings(home=tmp_path), Clock())
    assert "--home" in str(refused.value)
    assert (file.read_bytes() if file.is_file() else None) == before


def test_a_start_beside_a_program_that_holds_the_database_says_to_end_that_one(tmp_path: Path) -> None:
    file = tmp_path / "groupscope.db"
    file.write_bytes(empty_database())
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(CannotStart, match=r"locked.*end that one") as refused:
            open_services(Settings(home=tmp_path, busy_seconds=0.1), Clock())
    assert "restore" not in str(refused.value)  # the database is whole


@pytest.mark.parametrize("url", ["postgresql+missing://host/runs", "postgresql+asyncpg://host/runs", "runs.db"])
def test_an_address_of_no_database_that_can_be_used_here_is_refused_in_words(tmp_path: Path, url: str) -> None:
    with pytest.raises(CannotStart, match="GROUPSCOPE_DATABASE_URL names no database that can be used here"):
        open_services(Settings(home=tmp_path, database_url=url), Clock())


def test_a_disk_without_locks_is_said_to_be_none_for_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(CannotStart, match=r"No locks available.*--home"), alone(tmp_path / "lock", "me", str):
        pass


def test_a_look_at_a_large_database_takes_a_bounded_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "groupscope.db").write_bytes(empty_database())
    monkeypatch.setattr(opening, "LOOK_SECONDS", -1.0)
    monkeypatch.setattr(opening, "_STEPS", 1)
    open_services(Settings(home=tmp_path), Clock()).database.close()


@pytest.mark.parametrize("content", ["", "\n", "a b", "\x00", "\u00e9"])
def test_a_token_file_without_a_token_opens_no_door(tmp_path: Path, content: str) -> None:
    (tmp_path / "token").write_text(content)
    with pytest.raises(CannotStart, match="holds no token: remove it"):
        create_app(Settings(home=tmp_path))
    with pytest.raises(ValueError, match="everybody"):
        Gate(lambda *_: None, token="", allowed_hosts=[])  # type: ignore[arg-type, return-value]


def test_a_new_token_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda number: (synced.append(os.fstat(number).st_size), sync(number))[1])
    token_of(Settings(home=tmp_path))
    assert synced
    assert synced[0] >= 32


# ---- settings


def test_settings_are_read_from_the_home_and_not_from_where_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "TOKEN", "BACKEND_URL"):
        monkeypatch.delenv(f"GROUPSCOPE_{name}", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GROUPSCOPE_TOKEN", "mine")
    (tmp_path / ".env").write_text("GROUPSCOPE_BACKEND_URL=http://evil.example\n")
    assert load(Connection).backend_url == "http://127.0.0.1:8000"
    home = tmp_path / "home"
    make_private(home)
    (home / ".env").write_text("GROUPSCOPE_BACKEND_URL=http://gpu.example\n")
    assert load(Connection, home=home).backend_url == "http://gpu.example"
    monkeypatch.setenv("GROUPSCOPE_HOME", str(home))
    assert load(Connection).backend_url == "http://gpu.example"


def test_settings_that_others_could_have_written_or_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"GROUPSCOPE_TOKEN=\xff\xfe")
    for mode, words in ((0o777, "chmod 700"), (0o700, "cannot be read")):
        tmp_path.chmod(mode)
        with pytest.raises(CannotStart, match=words):
            load(Connection, home=tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("BACKEND_PORT", "port", "is wrong"),
        ("LEASE_SECONDS", "-1", "is wrong"),
        *(("TOKEN", one, "is wrong: .*openssl rand") for one in (" ", "a b", "\t", "\u00e9\u00e9\u00e9\u00e9", "x\ny")),
    ],
)
def test_a_wrong_setting_and_a_token_that_cannot_be_shown_are_named_in_words(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str
) -> None:
    monkeypatch.setenv(f"GROUPSCOPE_{name}", value)
    with pytest.raises(CannotStart, match=f"GROUPSCOPE_{name} {words}"):
        load(Settings)


# ---- the home


def test_the_home_and_what_is_written_there_is_its_owners_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    before = os.umask(0o022)
    try:
        make_private(home)
        (home / "new").write_text("secret")
        (home / "folder").mkdir()
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (home, home / "new", home / "folder")}
    assert modes == {"home": 0o700, "new": 0o600, "folder": 0o700}


def test_a_home_that_is_a_file_or_below_one_is_refused_and_one_without_a_token_is_named(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="GROUPSCOPE_TOKEN") as refused:
        stored_token(tmp_path)
    assert str(tmp_path / "token") in str(refused.value)
    (tmp_path / "file").write_text("")
    for home in (tmp_path / "file", tmp_path / "file" / "home"):
        with pytest.raises(CannotStart, match="--home"):
            make_private(home)


# ---- the processes


def start(module: str, *arguments: str, home: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """A process that is expected to end by itself."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GROUPSCOPE_")}
    environment |= {"GROUPSCOPE_HOME": str(home)} | {f"GROUPSCOPE_{name}": value for name, value in settings.items()}
    like = "backend.app" if module == "backend.cli" else module
    command = [module, *arguments]
    with NamedTemporaryFile("r") as out, NamedTemporaryFile("r") as errors:
        process = zygote.start(like, command, environment | zygote.OF_SITES, Path(out.name), errors=Path(errors.name))
        try:
            status = process.wait(timeout=120)
        finally:
            process.kill()
        return subprocess.CompletedProcess(command, status, out.read(), errors.read())


def refused(ended: subprocess.CompletedProcess[str], words: str) -> None:
    assert ended.returncode == 1, ended
    assert TRACEBACK not in ended.stderr
    last = ended.stderr.strip().splitlines()[-1]
    assert words in last, ended.stderr


@pytest.mark.slow
def test_each_process_refuses_in_words(tmp_path: Path) -> None:
    file, bad = tmp_path / "file", tmp_path / "bad"
    file.write_text("")
    bad.mkdir()
    (bad / "groupscope.db").write_text(NOT_A_DATABASE)
    (bad / "token").write_text("")
    refused(start("backend.app", home=file), "is a file")
    refused(start("backend.app", home=bad), "not a database")
    refused(start("backend.app", home=tmp_path / "h", BACKEND_HOST="0.0.0.0", TOKEN="short"), "at least 16 characters")  # noqa: S104
    refused(start("worker.main", home=file), "is a file")
    refused(start("worker.main", home=bad), "holds no token")
    refused(start("worker.main", home=tmp_path / "h2", JUDGES="{"), "settings cannot be read")
    refused(start("worker.main", "--backend", "http://a:x", home=bad, TOKEN="long-enough-token"), "cannot be read")
    refused(start("worker.main", "--token-file", str(bad / "none"), home=bad), "none: No such file")
    for name in ("backend.lock", "token", "workers"):
        (tmp_path / "h5" / name).parent.mkdir(exist_ok=True)
    (tmp_path / "h5" / "backend.lock").mkdir()
    (tmp_path / "h5" / "workers").write_text("")
    refused(start("backend.app", home=tmp_path / "h5"), "backend.lock: Is a directory")
    refused(start("worker.main", home=tmp_path / "h5", TOKEN="long-enough-for-a-token"), "workers: File exists")
    refused(start("dashboard.server", home=bad, DASHBOARD_ALLOWED_HOSTS="x", TOKEN=" "), "GROUPSCOPE_TOKEN is wrong")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused(start("backend.app", home=tmp_path / "h3", BACKEND_PORT=port), "cannot be listened on")
        refused(start("dashboard.server", "--port", port, home=tmp_path / "h4"), "cannot be listened on")
    ports = ["--port", str(free_port()), "--backend-port", str(free_port())]
    (tmp_path / "h6").mkdir()
    (tmp_path / "h6" / "groupscope.db").write_text(NOT_A_DATABASE)
    up = start("backend.cli", "up", "--no-browser", *ports, home=tmp_path / "h6")
    assert (up.returncode, TRACEBACK in up.stderr) == (1, False)
    assert "the backend cannot start" in up.stderr
    assert "not a database" in up.stderr
    refused(start("backend.cli", "runs", home=bad, BACKEND_URL="http://127.0.0.1:9"), "holds no token")
    refused(start("backend.cli", "runs", home=bad, TOKEN="t", BACKEND_URL="http://127.0.0.1:9"), "does not answer")


@pytest.mark.slow
def test_a_home_has_one_backend_and_everything_in_it_is_its_owners_alone(tmp_path: Path) -> None:
    with Site(tmp_path / "home") as site:
        site.home.chmod(0o755)
        site.backend()
        link = tmp_path / "link"
        link.symlink_to(site.home)
        for home in (site.home, link):
            second = start("backend.app", home=home, BACKEND_PORT="0")
            refused(second, "a backend already serves")
            assert f"port {site.port}" in second.stderr
        assert stat.S_IMODE(site.home.stat().st_mode) == 0o700
        written = [path for path in site.home.rglob("*") if path.name != "backend.app.log"]  # which the test opened
        assert {path.name for path in written} >= {"groupscope.db", "backend.lock"}
        assert all(stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 for path in written)


@pytest.mark.thorough
@pytest.mark.slow
def test_a_token_shows_in_no_command_line(tmp_path: Path) -> None:
    for command in ("worker", "dashboard", "submit", "runs", "export", "doctor"):
        ended = start("backend.cli", command, "--token", "x", home=tmp_path)
        assert ended.returncode != 0
        assert "--token-file" in ended.stderr
