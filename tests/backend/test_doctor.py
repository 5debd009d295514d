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
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
from processes import free_port
from recorded import finish, queue, train
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
        with backend.services.database.write() as tx:
            tx.exec_driver_sql("UPDATE checkpoint SET store = '#abcd'")
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
    with backend.services.database.write() as tx:
        tx.exec_driver_sql(
            "INSERT INTO checkpoint (run_id, attempt, step, store, path, sha256, size_bytes, created_at) "
            "VALUES (?, 1, 2, ?, ?, ?, 2, '2026-01-01 00:00:00')",
            (run, f"{store}#abcd", f"run-{run}/step-2-attempt-1", doctor.sha256(manifest).hexdigest()),
        )
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


def damage_the_database(backend: Backend) -> None:
    with closing(sqlite3.connect(backend.home / "groupscope.db")) as database:
        assert database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    with (backend.home / "groupscope.db").open("r+b") as file:
        file.seek(3 * 4096)
        file.write(bytes(20 * 4096))


def age_the_database(backend: Backend) -> None:
    with backend.services.database.write() as tx:
        tx.exec_driver_sql("UPDATE alembic_version SET version_num = '9042'")


def orphan_rows(backend: Backend) -> None:
    with closing(sqlite3.connect(backend.home / "groupscope.db")) as database:
        database.execute("INSERT INTO metric (run_id, name, step, attempt, value) VALUES (77, 'reward', 0, 1, 1.0)")
        database.commit()


def set_the_clock_back(backend: Backend) -> None:
    with backend.services.database.write() as tx:
        tx.exec_driver_sql("UPDATE run SET created_at = '2999-01-01 00:00:00.000000'")


def shorten_an_upload(backend: Backend) -> None:
    (backend.home / "uploads" / "1.jsonl").write_bytes(b"{}")


def lose_a_trace(backend: Backend) -> None:
    next((backend.home / "traces").rglob("*.parquet")).unlink()


def damage_a_checkpoint(backend: Backend) -> None:
    (backend.home / "checkpoints" / "run-1" / "step-2-attempt-1" / "state.json").write_text("{ }")


def empty_the_token(backend: Backend) -> None:
    (backend.home / "token").write_text("\n")
    (backend.home / "token").chmod(0o600)


def garble_the_token(backend: Backend) -> None:
    (backend.home / "token").write_bytes(b"\xff\x00")
    (backend.home / "token").chmod(0o600)


def open_the_home(backend: Backend) -> None:
    backend.home.chmod(0o755)


def open_the_token(backend: Backend) -> None:
    (backend.home / "token").write_text("a-token-that-is-long-enough")
    (backend.home / "token").chmod(0o644)


@pytest.mark.parametrize(
    ("plant", "named", "advice"),
    [
        (damage_the_database, "groupscope.db", "groupscope restore"),
        (age_the_database, "newer version of groupscope (revision 9042)", "install that version again"),
        (orphan_rows, "2 rows whose parent is missing", "groupscope restore"),
        (set_the_clock_back, "in the future", "set this machine's clock"),
        (shorten_an_upload, "missing or damaged", "from a backup"),
        (lose_a_trace, "missing or damaged", "from a backup"),
        (damage_a_checkpoint, "step-2-attempt-1", "earlier checkpoint"),
        (empty_the_token, "token holds no token", "the backend makes another"),
        (garble_the_token, "token holds no token", "the backend makes another"),
        (open_the_home, "can be read by other users", "chmod 700"),
        (open_the_token, "can be read by other users", "chmod 600"),
    ],
)
def test_each_planted_fault_of_the_home_is_named_with_what_to_do(
    installation: Backend, plant: Callable[[Backend], None], named: str, advice: str
) -> None:
    plant(installation)
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


def test_a_full_disk_is_named(installation: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "FEW_BYTES", 2**62)
    said = examined(installation)
    assert (said.exit_code, "GiB free on the disk" in said.output) == (1, True)


def test_a_wrong_token_is_named(installation: Backend) -> None:
    said = examined(installation, token="a-wrong-token-that-is-long")
    assert (said.exit_code, "show the one of the backend's home" in said.output) == (1, True)


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


def test_without_a_token_one_problem_is_named(installation: Backend) -> None:
    said = examined(installation, token="")
    assert (said.exit_code, said.output.count("PROBLEM")) == (1, 1)
    assert "there is none to show" in said.output


def test_a_database_elsewhere_is_left_to_its_own_tools(installation: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    orphan_rows(installation)  # in the file of the home, which nothing uses
    monkeypatch.setenv("GROUPSCOPE_DATABASE_URL", "postgresql://db/records")
    said = examined(installation)
    assert (said.exit_code, "names another one" in said.output) == (0, True), said.output
    copied = CliRunner().invoke(app, ["backup", "--home", str(installation.home)])
    assert (copied.exit_code, "with its own tool" in copied.output) == (1, True)


def test_a_backend_that_is_away_is_named(installation: Backend) -> None:
    said = examined(installation, url="http://127.0.0.1:9")
    assert (said.exit_code, "nothing answers at http://127.0.0.1:9" in said.output) == (1, True)


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


def test_an_old_library_is_named(installation: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"pydantic": "2.0"}
    monkeypatch.setattr(
        doctor,
        "metadata",
        SimpleNamespace(
            version=lambda name: versions.get(name) or metadata.version(name),
            requires=metadata.requires,
            PackageNotFoundError=metadata.PackageNotFoundError,
        ),
    )
    said = examined(installation)
    assert said.exit_code == 1
    assert "pydantic 2.0 is installed, and >=2.12 is needed" in said.output


def test_torch_that_cannot_use_the_driver_is_named(
    installation: Backend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    shutil.copy("/bin/true", folder / "nvidia-smi")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    said = examined(installation)
    assert (said.exit_code, "torch 2.13.0 cannot use it" in said.output) == (1, True)


def test_a_torch_that_fails_to_start_is_named(installation: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "GPU", "raise ImportError('libcudart.so.13: cannot open shared object file')")
    said = examined(installation)
    assert (said.exit_code, "torch fails: ImportError: libcudart.so.13" in said.output) == (1, True)


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
