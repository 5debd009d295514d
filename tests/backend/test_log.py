"""The backend's log: a line about a run names it, and its attempt where a worker proved one."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import httpx
import pytest
from acting import GRPO, Actor
from fastapi import FastAPI
from pydantic import SecretStr
from serving import TOKEN, Backend

from backend.app import create_app
from backend.lifecycle.deletion import Remover
from backend.server.log import OfRequest, about_run, set_up_log
from backend.settings import Settings


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[str]]]:
    """The lines since it was last asked, of a log that is set up as the process sets it up."""
    stderr = StringIO()
    monkeypatch.setattr("sys.stderr", stderr)
    monkeypatch.setattr(logging.root, "handlers", [])
    level = logging.root.level
    set_up_log()
    logging.getLogger("httpx").setLevel(logging.WARNING)  # the tests' own

    def lines() -> list[str]:
        found = stderr.getvalue()
        stderr.truncate(0)
        stderr.seek(0)
        return found.splitlines()

    yield lines
    logging.root.setLevel(level)


def ask(app: FastAPI, method: str, path: str, **sent: object) -> httpx.Response:
    async def request() -> httpx.Response:
        to = httpx.ASGITransport(OfRequest(app), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=to, base_url="http://localhost") as client:
            client.headers["Authorization"] = f"Bearer {TOKEN}"
            return await client.request(method, path, **sent)  # type: ignore[arg-type]

    return asyncio.run(request())


def broken(*_: object, **__: object) -> None:
    raise RuntimeError("it broke\n2026-11-23 00:00:00,000 ERROR backend.errors: forged")


def test_a_failed_request_is_written_with_its_run_and_the_attempt_that_was_proven(
    backend: Backend, written: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = create_app(backend.services.settings)
    run = backend.client.create_run(GRPO)
    actor = Actor(backend.client).begin()
    monkeypatch.setattr("backend.runs.store.get", broken)
    monkeypatch.setattr("backend.queue.attempts.heartbeat", broken)
    written()
    assert ask(app, "GET", f"/api/v1/runs/{run.id}").status_code == 500
    lines = written()
    assert f"[run {run.id}] GET /api/v1/runs/{run.id} failed" in lines[0]
    assert all(f"  [run {run.id}] " in line for line in lines[1:])
    assert not any(line.startswith("2026-11-23 00:00:00,000") for line in lines)
    beat = {"attempt": actor.attempt, "worker": "one"}
    secret = {"Groupscope-Claim": backend.client.secrets[run.id, actor.attempt]}
    assert ask(app, "POST", f"/api/v1/worker/runs/{run.id}/heartbeat", json=beat, headers=secret).status_code == 500
    lines = written()
    assert len(lines) > 5
    assert all(f"[run {run.id} attempt 1] " in line for line in lines)


def test_a_line_about_no_run_names_none(
    tmp_path: Path, written: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = create_app(Settings(home=tmp_path, token=SecretStr(TOKEN)))
    monkeypatch.setattr("backend.catalog.catalog", broken)
    assert ask(app, "GET", "/api/v1/catalog").status_code == 500
    assert ask(app, "GET", "/api/v1/runs/7%0aforged/metrics").status_code == 422
    assert not any("[run" in line for line in written())


def test_the_removal_of_a_run_is_written_as_that_runs(backend: Backend, written: Callable[[], list[str]]) -> None:
    run = backend.client.create_run(GRPO)
    backend.client.command(run.id, "stop")
    backend.client.delete_run(run.id)
    remover = Remover(backend.services)
    while remover.advance() is not None:
        pass
    assert [line for line in written() if f"[run {run.id}] deleted with all that it had" in line] != []


def test_the_same_words_about_other_runs_are_no_repetition(written: Callable[[], list[str]]) -> None:
    for run_id in (*range(1, 7), *[6] * 10):
        about_run(run_id)
        logging.getLogger("backend.one").info("deleted")
    about_run(None)
    assert [line.partition(" deleted")[0][-7:] for line in written()] == [
        f"[run {n}]" for n in (1, 2, 3, 4, 5, 6, 6, 6)
    ]
