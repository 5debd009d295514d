"""The doctor: a healthy installation is found healthy, and each planted fault is named with what to do about it."""

import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from importlib import metadata
from pathlib import Path

import pytest
from processes import free_port
from recorded import checkpoint_of, finish, queue, train
from serving import TOKEN, Backend, Backends
from typer.testing import CliRunner, Result

from backend.bucket import bucket as buckets
from backend.bucket.bucket import Bucket
from backend.cli import app
from backend.operations import doctor


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Away from any .env; torch is asked in a test of its own, since importing it takes seconds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(doctor, "GPU", "print('none', '2.13.0')")
    monkeypatch.setattr(doctor, "FEW_BYTES", 1)
    for name in ("HOME", "TOKEN", "BACKEND_URL"):
        monkeypatch.setenv(f"GROUPSCOPE_{name}", "")


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a recorded run, token traces, an upload and a checkpoint, as a healthy one has them."""
    with Backends(tmp_path_factory.mktemp("healthy") / "home") as backends:
        backend = backends.start()
        record(backend)
        with closing(sqlite3.connect(backend.home / "groupscope.db")) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return backend.home


@pytest.fixture
def installation(healthy: Path, tmp_path: Path, start_backend: Callable[..., Backend]) -> Backend:
    """A backend on a copy of it."""
    home = tmp_path / "home"
    shutil.copytree(healthy, home)
    home.chmod(0o700)
    backend = start_backend()
    with backend.services.database.write() as tx:
        tx.exec_driver_sql("UPDATE checkpoint SET store = ? || store", (str(home.resolve() / "checkpoints"),))
    return backend


def record(backend: Backend) -> None:
    run = queue(backend.client)
    claimed = train(backend.client, run, steps=2, total=2, prompts=2, group_size=3, traced=True)
    store = backend.home.resolve() / "checkpoints"
    folder = store / f"run-{run}" / "step-2-attempt-1"
    folder.mkdir(parents=True)
    (folder / "state.json").write_text("{}")
    size, digest = 2, "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"  # SHA-256 of {}
    manifest = f'{{"files": {{"state.json": {{"size": {size}, "sha256": "{digest}"}}}}}}'.encode()
    (folder / "manifest.json").write_bytes(manifest)
    saved = checkpoint_of(claimed.attempt, 2, run).model_copy(
        update={"store": "#abcd", "path": f"run-{run}/step-2-attempt-1", "sha256": sha256(manifest).hexdigest()}
    )
    backend.client.checkpoint(run, saved)
    finish(backend.client, run, claimed)
    backend.client.upload("sums.jsonl", b'{"prompt": "1+1=", "answer": "2"}\n')
    with backend.services.database.write() as tx:  # the backend's clock of the tests stands in the future
        tx.exec_driver_sql("UPDATE run SET created_at = '2026-01-01 00:00:00.000000'")


def examined(backend: Backend, *options: str, url: str | None = None, token: str = TOKEN) -> Result:
    os.environ["GROUPSCOPE_TOKEN"] = token
    return CliRunner().invoke(
        app, ["doctor", "--home", str(backend.home), "--backend", url or backend.url, *options], catch_exceptions=False
    )


def test_a_healthy_installation_is_found_healthy(installation: Backend) -> None:
    for options in ((), ("--thorough",)):
        said = examined(installation, *options)
        assert (said.exit_code, "PROBLEM" in said.output) == (0, False), said.output
        assert "1 uploads, 2 token traces, 1 checkpoints" in said.output


Plant = Callable[[Backend, pytest.MonkeyPatch], object]


def damage_the_database(backend: Backend, _: pytest.MonkeyPatch) -> None:
    with closing(sqlite3.connect(backend.home / "groupscope.db")) as database:
        assert database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    with (backend.home / "groupscope.db").open("r+b") as file:
        file.seek(3 * 4096)
        file.write(bytes(20 * 4096))


def stored(statement: str) -> Plant:
    """What something else than the backend writes to its database."""

    def write(backend: Backend, _: pytest.MonkeyPatch) -> None:
        with closing(sqlite3.connect(backend.home / "groupscope.db")) as database:
            database.execute(statement)
            database.commit()

    return write


ORPHAN = stored("INSERT INTO metric (run_id, name, step, attempt, value) VALUES (77, 'reward', 0, 1, 1.0)")


def token_of(content: bytes, mode: int = 0o600) -> Plant:
    def write(backend: Backend, _: pytest.MonkeyPatch) -> None:
        (backend.home / "token").write_bytes(content)
        (backend.home / "token").chmod(mode)

    return write


def forget_pydantic(_: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "2.0" if name == "pydantic" else real(name))


def install_a_driver(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = backend.home.parent / "bin"
    folder.mkdir()
    shutil.copy("/bin/true", folder / "nvidia-smi")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


DAMAGED = "missing or damaged"
NO_LIBRARY = "raise ImportError('libcudart.so.13: cannot open shared object file')"
PLANTED: dict[str, tuple[Plant, str, str]] = {
    "a damaged database": (damage_the_database, "groupscope.db", "groupscope restore"),
    "a database of a later version": (
        stored("UPDATE alembic_version SET version_num = '9042'"),
        "newer version of groupscope (revision 9042)",
        "install that version again",
    ),
    "orphaned rows": (ORPHAN, "2 rows whose parent is missing", "groupscope restore"),
    "a clock that was set back": (
        stored("UPDATE run SET created_at = '2999-01-01 00:00:00.000000'"),
        "in the future",
        "set this machine's clock",
    ),
    "a short upload": (lambda b, _: (b.home / "uploads" / "1.jsonl").write_bytes(b"{}"), DAMAGED, "from a backup"),
    "a lost trace": (lambda b, _: next((b.home / "traces").rglob("*.parquet")).unlink(), DAMAGED, "from a backup"),
    "a damaged checkpoint": (
        lambda b, _: next((b.home / "checkpoints").rglob("state.json")).write_text("{ }"),
        "step-2-attempt-1",
        "earlier checkpoint",
    ),
    "an empty token": (token_of(b"\n"), "token holds no token", "the backend makes another"),
    "a garbled token": (token_of(b"\xff\x00"), "token holds no token", "the backend makes another"),
    "an open token": (token_of(b"a-token-that-is-long-enough", 0o644), "can be read by other users", "chmod 600"),
    "an open home": (lambda b, _: b.home.chmod(0o755), "can be read by other users", "chmod 700"),
    "a full disk": (lambda _, patch: patch.setattr(doctor, "FEW_BYTES", 2**62), "GiB free on the disk", ""),
    "an old library": (forget_pydantic, "pydantic 2.0 is installed, and >=2.12 is needed", ""),
    "a driver too new for torch": (install_a_driver, "torch 2.13.0 cannot use it", ""),
    "a torch that fails": (
        lambda _, patch: patch.setattr(doctor, "GPU", NO_LIBRARY),
        "torch fails: ImportError: libcudart.so.13",
        "",
    ),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_each_planted_fault_is_named_with_what_to_do(
    installation: Backend, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    plant, named, advice = PLANTED[fault]
    plant(installation, monkeypatch)
    said = examined(installation)
    problems = said.output[said.output.index("PROBLEM") :]
    assert said.exit_code == 1
    assert named in problems
    assert advice in problems


def test_a_flipped_byte_in_a_file_of_the_right_size_is_found_by_a_thorough_look(installation: Backend) -> None:
    trace = next((installation.home / "traces").rglob("*.parquet"))
    trace.write_bytes(trace.read_bytes()[:-1] + b"?")
    assert examined(installation).exit_code == 0
    said = examined(installation, "--thorough")
    assert (said.exit_code, trace.name in said.output) == (1, True)


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"token": "a-wrong-token-that-is-long"}, "show the one of the backend's home"),
        ({"token": ""}, "there is none to show"),
        ({"url": "http://127.0.0.1:9"}, "nothing answers at http://127.0.0.1:9"),
    ],
)
def test_a_backend_that_is_away_and_a_token_that_opens_nothing_are_one_problem(
    installation: Backend, asked: dict[str, str], named: str
) -> None:
    said = examined(installation, **asked)
    assert (said.exit_code, said.output.count("PROBLEM")) == (1, 1)
    assert named in said.output


def test_the_home_of_another_user_is_named(installation: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(doctor.os, "access", lambda *_: False)
    for name in ("exists", "is_file"):
        monkeypatch.setattr(Path, name, refuse)
    monkeypatch.setenv("GROUPSCOPE_HOME", str(installation.home))
    monkeypatch.setenv("GROUPSCOPE_TOKEN", TOKEN)
    said = CliRunner().invoke(app, ["doctor", "--backend", installation.url], catch_exceptions=False)
    assert (said.exit_code, said.output.count("PROBLEM")) == (1, 1), said.output
    assert "run this as the user that owns it" in said.output


def test_a_database_elsewhere_is_left_to_its_own_tools(installation: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    ORPHAN(installation, monkeypatch)  # in the file of the home, which nothing uses
    monkeypatch.setenv("GROUPSCOPE_DATABASE_URL", "postgresql://db/records")
    said = examined(installation)
    assert (said.exit_code, "names another one" in said.output) == (0, True), said.output
    copied = CliRunner().invoke(app, ["backup", "--home", str(installation.home)])
    assert (copied.exit_code, "with its own tool" in copied.output) == (1, True)


def test_another_program_at_the_backends_address_is_named(installation: Backend) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:

        def answer() -> None:
            connection, _address = taken.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")

        thread = threading.Thread(target=answer)
        thread.start()
        said = examined(installation, url=f"http://127.0.0.1:{taken.getsockname()[1]}")
        thread.join()
    assert (said.exit_code, "answered by another program" in said.output) == (1, True)


@pytest.mark.thorough
@pytest.mark.slow
def test_the_real_torch_says_what_a_worker_here_would_train_on(installation: Backend) -> None:
    asked = subprocess.run(
        [sys.executable, "-m", "backend.cli", "doctor", "--home", installation.home, "--backend", installation.url],
        env=os.environ | {"GROUPSCOPE_TOKEN": TOKEN},
        capture_output=True,
        text=True,
        check=False,
    )
    [gpu] = [line for line in asked.stdout.splitlines() if line.startswith(("ok       gpu", "note     gpu"))]
    assert "CPU" in gpu or "GiB free" in gpu


def test_a_home_that_is_not_there_is_named(installation: Backend, tmp_path: Path) -> None:
    said = CliRunner().invoke(app, ["doctor", "--home", str(tmp_path / "nowhere"), "--backend", installation.url])
    assert (said.exit_code, "nowhere is not a directory" in said.output) == (1, True)


def test_a_bucket_that_does_not_answer_is_named_and_one_that_does_is_well(
    installation: Backend, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUPSCOPE_CHECKPOINTS", bucket.address)
    said = examined(installation)
    assert (said.exit_code, f"{bucket.address} answers; no worker has used it" in said.output) == (0, True)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    buckets._s3.cache_clear()
    said = examined(installation)
    assert said.exit_code == 1
    assert f"{bucket.address} does not answer" in said.output
    assert "mend GROUPSCOPE_CHECKPOINTS" in said.output
