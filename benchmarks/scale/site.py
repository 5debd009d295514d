"""A real backend and what works with it, in processes of their own; and what lies in the large database."""

import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_urlsafe

import httpx

from backend.contract.client import Client
from backend.supervisor import dashboard_command

TOKEN = token_urlsafe()
PATIENCE = 60.0  # seconds for a process to come up
_LOOKED_AT = 40  # steps of the large run, and of each a few groups
LEASE = 3600.0  # seconds: between two parts nobody speaks for the run under way


@dataclass(frozen=True)
class Site:
    """Where backend and dashboard listen, all processes by their names, and the database."""

    database: Path
    client: Client
    backend_url: str
    dashboard_url: str
    processes: dict[str, subprocess.Popen[bytes]]


@contextmanager
def site(home: Path, *, workers: int = 0, dashboard: bool = False, **settings: str) -> Iterator[Site]:
    """A backend on this home and the others, all up; ended on leaving. Several workers have one thread each."""
    ports = _free_ports()
    backend_url, dashboard_url = (f"http://127.0.0.1:{port}" for port in ports)
    settings |= {"HOME": str(home), "TOKEN": TOKEN, "BACKEND_URL": backend_url, "BACKEND_PORT": str(ports[0])}
    environment = os.environ | {f"GROUPSCOPE_{name}": value for name, value in settings.items()}
    if workers > 1:
        environment["OMP_NUM_THREADS"] = "1"
    commands = {"backend": [sys.executable, "-m", "backend.app"]}
    commands |= {f"worker-{number}": [sys.executable, "-m", "worker.main"] for number in range(1, workers + 1)}
    if dashboard:
        commands["dashboard"] = dashboard_command(ports[1])
    health = {"backend": f"{backend_url}/healthz", "dashboard": f"{dashboard_url}/_stcore/health"}
    started: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, command in commands.items():
            with (home / f"{name}.log").open("ab") as log:
                started[name] = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            if name in health:
                _wait_for(health[name], f"{name}; see {log.name}")
        with Client(backend_url, TOKEN) as client:
            yield Site(home / "groupscope.db", client, backend_url, dashboard_url, started)
    finally:
        for process in reversed(started.values()):
            process.terminate()
            process.wait(timeout=30)


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        for one in (first, second):
            one.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]


def _wait_for(health: str, what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            if httpx.get(health).is_success:
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
    by_role: dict[str, list[int]] = {}
    for run in client.runs(kind="training", limit=200).items:
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
