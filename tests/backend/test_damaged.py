"""A damaged database file is said to be damaged, with what to do, in the shape of every error."""

import sqlite3
from contextlib import closing
from typing import Any

import httpx
import pytest
from acting import GRPO, began, group
from serving import Backend


@pytest.mark.parametrize("path", ["/api/v1/runs/1/completions", "/api/v1/groups/3", "/api/v1/runs/1/export"])
def test_a_damaged_page_is_answered_with_advice(backend: Backend, path: str) -> None:
    actor = began(backend.client)
    for step in range(3):
        actor.report(step, groups=[group(index, prompt_id="x" * 200) for index in range(30)])
    _overwrite_groups(backend)
    try:
        answer = backend.http.get(path)
    except httpx.RemoteProtocolError:
        assert path.endswith("export"), "its status was sent before the first row was read, and it breaks off"
        return
    assert answer.status_code == 500
    error: Any = answer.json()["error"]
    assert error["code"] == "database_damaged"
    assert "groupscope doctor" in error["message"]
    assert "groupscope restore" in error["message"]
    assert backend.http.get("/healthz").status_code == 200


def test_a_text_that_is_none_any_more_is_answered_with_advice(backend: Backend) -> None:
    run = backend.client.create_run(GRPO)
    with backend.services.database.write() as tx:
        tx.exec_driver_sql("UPDATE run SET name = CAST(X'ff' AS TEXT)")
    answer = backend.http.get(f"/api/v1/runs/{run.id}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "database_damaged")


def _overwrite_groups(backend: Backend) -> None:
    """Zeros over the root pages of groups, of completions, and of their indexes."""
    with backend.services.database.read() as tx:
        size = tx.exec_driver_sql("PRAGMA page_size").scalar_one()
        pages = "SELECT rootpage FROM sqlite_master WHERE tbl_name IN ('prompt_group', 'completion')"
        roots = tx.exec_driver_sql(pages).scalars().all()
    backend.services.database.close()  # what a connection has read it keeps
    path = backend.home / "groupscope.db"
    # A request may still hold one; until none does, the pages are read from the write-ahead log.
    with closing(sqlite3.connect(path, timeout=60)) as ours:
        assert ours.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    with path.open("r+b") as file:
        for page in filter(None, roots):
            file.seek((page - 1) * size)
            file.write(b"\0" * size)
