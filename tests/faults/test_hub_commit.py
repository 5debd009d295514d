"""A run whose worker dies begins again from the same weights, although the model's name on the Hub has moved meanwhile."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hub import FIRST, NAME, SECOND, Hub
from processes import Site, tiny_run, wait_until
from zygote import HUB

pytestmark = [pytest.mark.slow, pytest.mark.thorough]


def texts(site: Site, run_id: int, attempt: int) -> list[str]:
    """What an attempt sampled and trained on in its first two steps, also where a later one has taken its place."""
    query = "SELECT text FROM completion WHERE run_id = ? AND attempt = ? AND step < 2 AND state <> 'probe' ORDER BY step, id"
    with closing(sqlite3.connect(site.home / "groupscope.db")) as database:
        return [text for (text,) in database.execute(query, (run_id, attempt))]


@pytest.fixture
def hub() -> Iterator[Hub]:
    yield Hub(HUB)
    shutil.rmtree(HUB)


def test_a_second_attempt_samples_what_the_first_did(tmp_path: Path, hub: Hub) -> None:
    with Site(tmp_path / "home") as site:
        site.backend()
        worker = site.worker()
        run = site.client.create_run(tiny_run(400, every=0, model={"source": NAME}))
        site.wait_for_step(run.id, 2)
        assert site.client.run(run.id).model_commit == FIRST
        hub.move_main(SECOND)
        worker.kill()
        worker.wait()
        site.worker()
        wait_until(lambda: len(texts(site, run.id, 2)) >= 16, "another worker samples the first steps again")
        assert site.client.run(run.id).model_commit == FIRST
        site.client.command(run.id, "stop")
        assert site.wait_for_end(run.id).status == "stopped"
        first, second = texts(site, run.id, 1), texts(site, run.id, 2)
        assert len(first) >= 16
        assert first == second
