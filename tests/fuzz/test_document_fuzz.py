"""A few requests of every operation, drawn from the document; `make fuzz-http` draws 2,000 of each."""

from pathlib import Path

import pytest
import records
import rounds
from processes import Site


@pytest.mark.thorough
@pytest.mark.slow
def test_no_request_ends_in_a_failure_of_ours_or_in_an_answer_that_the_document_does_not_have(tmp_path: Path) -> None:
    with Site(tmp_path / "home", lease_seconds=3600) as site:
        site.backend()
        records.fill(site)
        found = rounds.run(site, tmp_path, examples=10, number=1)
    assert found.passed, found.output
    assert len(found.answered) >= 60, "every operation was asked"
    of_workers = (f"worker/runs/{{run_id}}/{sent}" for sent in ("report", "reports", "checkpoint"))
    for operation in ("runs", "uploads", *of_workers):
        assert found.answered[f"POST /api/v1/{operation}"].keys() & {"200", "201"}, f"{operation} was never accepted"
