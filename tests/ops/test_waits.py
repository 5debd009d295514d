"""A test that waits for a process that has died fails at once, with the end of its log, and not minutes later."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from processes import Site, site, tiny_run, wait_until
from serving import Backends

from backend import app
from backend.contract.client import Unreachable

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]  # a wait has the patience of four minutes

site = pytest.fixture(site)


def test_a_backend_that_cannot_start_is_not_waited_for(site: Site) -> None:
    died = r"(?s)“the backend answers”: backend\.app ended by itself with 1; .*LEASE_SECONDS"
    with pytest.raises(AssertionError, match=died):
        site.backend(GROUPSCOPE_LEASE_SECONDS="long")


def test_a_worker_that_died_is_not_waited_for_unless_the_test_has_waited_for_its_end(site: Site) -> None:
    site.backend()
    run = site.client.create_run(tiny_run(2))
    dead = site.worker(module="tests.faults.worker_dead_after_claim")
    died = rf"“run {run.id} ends”: .*worker_dead_after_claim.* ended by itself with -9"
    with pytest.raises(AssertionError, match=died):
        site.wait_for_end(run.id)
    killed = site.worker(home=site.home.parent / "elsewhere")
    killed.kill()
    assert dead.wait() == killed.wait() == -9
    site.worker()
    assert site.wait_for_end(run.id).status == "finished"


def test_processes_of_a_site_that_was_closed_are_of_no_matter(tmp_path: Path) -> None:
    closed = Site(tmp_path / "home")
    closed.start_backend()
    closed.close()
    asked: Iterator[bool] = iter([False, True])
    wait_until(lambda: next(asked), "the second answer")


def test_an_end_is_learnt_of_by_every_thread_that_asks(site: Site) -> None:
    process = site.start_backend()
    process.kill()
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: process.wait(timeout=30), range(8))) == [-9] * 8
    assert site.start_backend().poll() is None, "the parent of both is still there"


def test_a_backend_in_the_tests_own_process_that_cannot_start_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("nothing is removed today")

    monkeypatch.setattr(app, "Remover", broken)
    with Backends(tmp_path / "home") as backends:
        backend = backends.start()
        with pytest.raises(AssertionError, match="the backend in this process ended by itself"):
            wait_until(backend.client.runs, "runs are listed")
        with pytest.raises(Unreachable):
            backend.client.runs()
