"""A service to be a judge, which is asked again at once."""

from collections.abc import Iterator

import pytest
from judge_service import Service

from worker.rewards import judge_endpoint


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setattr(judge_endpoint, "FIRST_WAIT", 0.01)
    with Service.serving() as one:
        yield one
