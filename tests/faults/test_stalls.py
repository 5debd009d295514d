"""The backend cannot store anything for longer than a lease: what it could not take is charged to nobody."""

import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from acting import GRPO, Actor
from processes import TOKEN, Site, standing_still, wait_until

from backend.contract.client import ApiError, Client, Unreachable

pytestmark = [pytest.mark.slow, pytest.mark.thorough]

Stall = Callable[[Site, subprocess.Popen[bytes]], AbstractContextManager[None]]
COUNTS = [(2.0, 1), pytest.param(3.0, 5, marks=pytest.mark.long)]


@contextmanager
def locked(site: Site, _backend: subprocess.Popen[bytes]) -> Iterator[None]:
    other = sqlite3.connect(site.home / "groupscope.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    yield
    other.execute("ROLLBACK")
    other.close()


def stopped(_site: Site, backend: subprocess.Popen[bytes]) -> AbstractContextManager[None]:
    return standing_still(backend)


def ask_for_work(idle: Actor, seconds: float) -> None:
    """As an idle worker does, and as often as it can."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            assert idle.claim() is None
        except (ApiError, Unreachable):
            time.sleep(0.02)


@pytest.mark.parametrize(("lease", "times"), COUNTS)
@pytest.mark.parametrize("stall", [locked, stopped])
def test_a_stall_of_twice_the_lease_takes_nobodys_run_and_silence_after_it_does(
    tmp_path: Path, stall: Stall, lease: float, times: int
) -> None:
    with Site(tmp_path / "home", lease_seconds=lease) as site:
        backend = site.backend()
        run = site.client.create_run(GRPO)
        holder = Actor(site.client, "holder").begin()
        with Client(site.url, TOKEN, timeout=lease) as client, holder.beating(lease / 4) as beats:
            idle = Actor(client, "idle")
            for _ in range(times):
                wait_until(lambda: beats.taken, "a heartbeat is taken")
                holder.beat()  # the lease is whole
                with stall(site, backend):
                    ask_for_work(idle, 2 * lease)
                ended = time.monotonic()
                ask_for_work(idle, lease)
                wait_until(lambda ended=ended: beats.since(ended) > 2, "heartbeats are taken again")
        assert not beats.lost
        found = site.client.run(run.id)
        assert (found.status, found.attempt, found.failures) == ("running", 1, 0)
        wait_until(lambda: Actor(site.client, "next").claim() is not None, "the run of a silent worker is taken")
        assert site.client.run(run.id).failures == 1
