"""A real backend and a real dashboard on the home with the database, in processes of their own; and what lies in it."""

import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from backend.contract.client import Client
from backend.supervisor import dashboard_command

TOKEN = "a-token-of-the-benchmark"  # noqa: S105  (for a backend on loopback that lives for minutes)
PATIENCE = 60.0  # seconds for a process to come up
_LOOKED_AT = 40  # steps of the large run, and of each a few groups
LEASE = 3600.0  # seconds: between two parts nobody speaks for the run under way


@dataclass(frozen=True)
class Site:
    """Where both listen, their processes, and the database."""

    database: Path
    client: Client
    backend_url: str
    dashboard_url: str
    backend: subprocess.Popen[bytes]
    dashboard: subprocess.Popen[bytes]


@contextmanager
def site(home: Path) -> Iterator[Site]:
    """Both are up; ended on leaving."""
    ports = _free_ports()
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    environment = os.environ | {
        "GROUPSCOPE_HOME": str(home),
        "GROUPSCOPE_TOKEN": TOKEN,
        "GROUPSCOPE_BACKEND_URL": urls[0],
        "GROUPSCOPE_BACKEND_PORT": str(ports[0]),
        "GROUPSCOPE_LEASE_SECONDS": str(LEASE),
    }
    commands = ([sys.executable, "-m", "backend.app"], dashboard_command(ports[1]))
    started: list[subprocess.Popen[bytes]] = []
    try:
        for command, health in zip(commands, (f"{urls[0]}/healthz", f"{urls[1]}/_stcore/health"), strict=True):
            with (home / "processes.log").open("ab") as log:
                started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
            _wait_until(lambda health=health: httpx.get(health).is_success, f"{command[-1]}; see {home}/processes.log")
        with Client(urls[0], TOKEN) as client:
            yield Site(home / "groupscope.db", client, *urls, *started)
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(timeout=30)


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        for one in (first, second):
            one.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]


def _wait_until(answers: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            if answers():
                return
        except httpx.TransportError:
            pass  # not yet
        time.sleep(0.1)
    raise TimeoutError(f"not up within {PATIENCE:.0f} s: {what}")


@dataclass(frozen=True)
class Contents:
    """Numbers of what the parts open, drawn once with a seed."""

    large: int
    live: int
    compared: list[int]  # the large run and the long ones
    steps: list[int]  # of the large run, those with groups
    groups: list[int]
    completions: list[int]  # with tokens
    prompt_ids: list[str]


def contents(client: Client) -> Contents:
    """Look around."""
    runs = [*client.runs(kind="training", limit=200).items]
    by_role: dict[str, list[int]] = {}
    for run in runs:
        by_role.setdefault(run.name.split()[0], []).append(run.id)
    large, live = by_role["large"][0], by_role["live"][0]
    draw = random.Random(0)
    steps = [one.step for one in client.steps(large)]
    groups, completions, prompts = [], [], []
    for step in draw.sample(steps, min(_LOOKED_AT, len(steps))):
        for row in draw.sample(client.groups(large, step=step, limit=100).items, 4):
            groups.append(row.id)
            prompts.append(row.prompt_id)
            completions += [one.id for one in client.group(row.id).completions if one.has_trace]
    return Contents(large, live, [*by_role["long"], large], steps, groups, completions, prompts)
