"""What tests of several parts share."""

import gc
import os
from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path

import drawing  # noqa: F401  # the profiles of property tests
import httpx
import pytest
from s3_server import BUCKET, S3Server
from serving import Backend, Backends

from backend.bucket import bucket as buckets
from backend.bucket.bucket import Bucket

# A skip fails in CI, `make test` says at its end what failed, and each test what it cost.
pytest_plugins = ["skips", "failed_list", "costs", "shuffle", "reach"]

# Each client reads all the authorities of TLS, which takes longer than most tests: here they share one reading.
httpx._transports.default.create_ssl_context = cache(httpx.create_ssl_context)


# Markers of what only a target of its own runs.
ALONE = ("long", "trials", "vllm", "containers", "ray", "slurm", "deploy", "trainers")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What only a target of its own runs is in neither ring of the suite, and slow, as whatever starts a backend."""
    for item in items:
        if alone := any(item.get_closest_marker(target) for target in ALONE):
            item.add_marker("alone")
        if alone or not {"start_backend", "shared_backend", "s3"}.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker("slow")


def pytest_collection() -> None:
    """Of torch's and transformers' million objects none ever goes: looking through them again and again takes seconds."""
    gc.disable()


def pytest_collection_finish() -> None:
    """What has been imported is looked through once, and never again."""
    gc.enable()
    _keep()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Nor is what the tests of a file leave behind, most of it imported while they ran."""
    ran = yield
    if nextitem is not None and nextitem.path != item.path:
        _keep()
    return ran


def _keep() -> None:
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def environment_as_before() -> Iterator[None]:
    """What torch's agent or Ray put into the environment goes with the module: what is forked must be like its parent."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """A second one, of so small a model, waits for the first and for whatever else the machine does."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def start_backend(tmp_path: Path) -> Iterator[Callable[..., Backend]]:
    """Starts backends on one home, with the settings given."""
    with Backends(tmp_path / "home") as backends:
        yield backends.start


@pytest.fixture
def backend(start_backend: Callable[..., Backend]) -> Backend:
    """One real backend, of the test's own."""
    return start_backend()


@pytest.fixture(scope="module")
def shared_backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """One real backend for a whole module, for tests that leave nothing behind which another could trip over."""
    with Backends(tmp_path_factory.mktemp("shared") / "home") as backends:
        yield backends.start()


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server for all tests; each has a prefix of its own."""
    server = S3Server(tmp_path_factory.mktemp("s3") / "server")
    yield server
    server.close()


@pytest.fixture
def bucket(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A store in it, which this process reaches, too."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    buckets._s3.cache_clear()
    return Bucket(f"s3://{BUCKET}/{tmp_path.name}")
