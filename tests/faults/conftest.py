"""The fixtures of the fault tests."""

from collections.abc import Iterator

import pytest
from pairs import Pair, create, trained
from processes import Site, site

site = pytest.fixture(site)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """What a run of two processes comes to if nobody disturbs it."""
    with Site(tmp_path_factory.mktemp("undisturbed") / "home") as one:
        one.backend()
        run = create(one)
        assert one.worker(GROUPSCOPE_PROCESSES="2", GROUPSCOPE_ONCE="true").wait(timeout=300) == 0
        yield trained(one, run.id)
