"""What was acknowledged survives the death of the backend."""

import os
import signal
import sqlite3
import subprocess
from pathlib import Path

import pytest
import zygote
from acting import GRPO, began, group
from processes import death_of, free_port, wait_until, watch

from backend.contract.client import Client, Unreachable

TOKEN = "test-token"


def serve(home: Path, port: int, client: Client) -> subprocess.Popen[bytes]:
    """A backend of its own process once it answers the client."""
    settings = {"HOME": str(home), "TOKEN": TOKEN, "BACKEND_PORT": str(port)}
    environment = os.environ | zygote.OF_SITES | {f"GROUPSCOPE_{name}": value for name, value in settings.items()}
    log = home.parent / "backend.log"
    process = zygote.start("backend.app", ["backend.app"], environment, log)
    watch(lambda: death_of(process, log))
    wait_until(client.healthy, "the backend answers", patience=30)
    return process


@pytest.mark.slow
def test_killing_the_backend_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    """The worker repeats what was not acknowledged, as its spool does, and training goes on where it was."""
    port = free_port()
    acknowledged = []
    with Client(f"http://127.0.0.1:{port}", TOKEN) as client:
        process = serve(tmp_path, port, client)
        actor = began(client)
        for step in range(60):
            if step % 20 == 10:
                process.send_signal(signal.SIGKILL)  # the next report finds it dying or dead
            try:
                actor.report(step, metrics={"reward": float(step)}, groups=[group(n) for n in range(16)])
            except Unreachable:
                process.wait()
                process = serve(tmp_path, port, client)
                actor.report(step, metrics={"reward": float(step)}, groups=[group(n) for n in range(16)])
            acknowledged.append(step)
        actor.finish()
        process.kill()
        process.wait()
        assert sqlite3.connect(tmp_path / "groupscope.db").execute("pragma integrity_check").fetchone() == ("ok",)
        process = serve(tmp_path, port, client)
        try:
            assert client.run(actor.run_id).status == "finished"
            assert client.run(actor.run_id).attempt == 1, "its own absence cost the worker no lease"
            assert client.metrics(actor.run_id).series["reward"].step == acknowledged
            assert [sum(one.states.values()) for one in client.steps(actor.run_id)] == [16] * 60
        finally:
            process.terminate()
            process.wait(timeout=15)


@pytest.mark.slow
def test_stopping_does_not_wait_for_those_who_only_listen(tmp_path: Path) -> None:
    port = free_port()
    with Client(f"http://127.0.0.1:{port}", TOKEN) as client:
        process = serve(tmp_path, port, client)
        run = client.create_run(GRPO)
        with client._to._http.stream("GET", f"/api/v1/runs/{run.id}/events") as answer:
            assert next(answer.iter_lines()) == ": listening"
            process.terminate()
            assert process.wait(timeout=10) == -signal.SIGTERM, "uvicorn raises the signal again once it has shut down"
