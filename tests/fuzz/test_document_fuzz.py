"""A few requests of every operation, drawn from the document; `make fuzz-http` draws 2,000 of each."""

from collections.abc import Iterator
from pathlib import Path

import processes
import pytest
import records
import rounds


@pytest.fixture
def site(tmp_path: Path) -> Iterator[processes.Site]:
    with processes.Site(tmp_path / "home", lease_seconds=3600) as one:
        yield one


@pytest.mark.thorough
@pytest.mark.slow
def test_no_request_ends_in_a_failure_of_ours_or_in_an_answer_that_the_document_does_not_have(
    site: processes.Site, tmp_path: Path
) -> None:
    site.backend()
    records.fill(site)
    found = rounds.run(site, tmp_path, examples=10, number=1)
    assert found.passed, found.output
    assert len(found.answered) >= 60, "every operation was asked"
    for operation in (
        "runs",
        "uploads",
        "worker/runs/{run_id}/report",
        "worker/runs/{run_id}/reports",
        "worker/runs/{run_id}/checkpoint",
    ):
        assert found.answered[f"POST /api/v1/{operation}"].keys() & {"200", "201"}, f"{operation} was never accepted"
