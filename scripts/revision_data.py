"""Makes the data that upgrades of older databases are tested with: a database that the code in the current directory filled.

    PYTHONPATH=. python scripts/revision_data.py tests/backend/revisions

A real backend and a real worker, killed once, train a few steps; uploads, samples, and what people say follow where
that version knows them. The result is `<revision>.db.xz`, the SQLite file, and `<revision>.json`, what the version's
own interface answered about it: what an upgraded database must still answer. Run it before the revision is raised, so
that the one before has its data. It asks over plain HTTP, since it has to work with versions long past.
"""

import json
import lzma
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

TOKEN = "a-token-for-the-data-of-revisions"  # noqa: S105 — of a backend that lives for a minute
TINY = {
    "kind": "grpo",
    "sampling": {"prompts_per_step": 2, "group_size": 3},
    "budget": {"steps": 7, "eval_every": 3, "checkpoint_every": 3, "seed": 0},
}
SETTLED = {"finished", "failed", "stopped", "paused"}


class Site:
    """A backend and workers of the code in the current directory."""

    def __init__(self, home: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.home, self.url = home, f"http://127.0.0.1:{port}"
        self.environment = os.environ | {
            "GROUPSCOPE_HOME": str(home),
            "GROUPSCOPE_TOKEN": TOKEN,
            "GROUPSCOPE_BACKEND_URL": self.url,
            "GROUPSCOPE_BACKEND_PORT": str(port),
            "GROUPSCOPE_LEASE_SECONDS": "2",
            "HF_HUB_OFFLINE": "1",
        }
        self.http = httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30)
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, module: str) -> subprocess.Popen[bytes]:
        """One process."""
        command = [sys.executable, "-m", module]
        self.started.append(subprocess.Popen(command, env=self.environment, stderr=subprocess.DEVNULL))
        return self.started[-1]

    def ask(self, method: str, path: str, **how: object) -> object | None:
        """What the interface answers; None if this version has no such thing."""
        response = self.http.request(method, f"/api/v1{path}", **how)  # type: ignore[arg-type]
        if response.status_code in (404, 405):
            return None
        response.raise_for_status()
        return response.json() if response.content else {}

    def wait(self, path: str, ready: object) -> None:
        """Until the record at `path` satisfies `ready`."""
        for _ in range(1200):
            try:
                if ready(self.ask("GET", path)):  # type: ignore[operator]
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        raise SystemExit(f"{path} did not come to its end")


def fill(site: Site) -> None:
    """Runs of each kind, one of them resumed after a kill, and what people add."""
    site.start("backend.app")
    site.wait("/runs", lambda runs: runs is not None)
    first = site.start("worker.main")
    rows = "".join(json.dumps({"prompt": f"{n}+{n}=", "answer": str(2 * n)}) + "\n" for n in range(8))
    site.ask("POST", "/uploads", params={"name": "sums.jsonl"}, content=rows.encode())
    site.ask("POST", "/runs", json={"config": TINY | {"budget": TINY["budget"] | {"steps": 12}}, "name": "killed once"})
    site.wait("/runs/1", lambda run: run["progress"]["step"] >= 5)
    first.send_signal(signal.SIGKILL)
    second = site.start("worker.main")
    site.wait("/runs/1", lambda run: run["status"] in SETTLED)
    site.ask("POST", "/runs", json={"config": TINY, "name": "naïve – 数学 \u202e", "notes": "kept", "tags": ["a", "b"]})
    site.wait("/runs/2", lambda run: run["status"] in SETTLED)
    for config in (
        {"kind": "sample", "model": {"source": "run:2@7"}, "prompts": ["1 + 2 x 3"], "group_size": 3},
        {"kind": "dpo", "pairs": {"kind": "sampled", "prompts": 8, "held_out_prompts": 4, "group_size": 4}}
        | {"budget": {"steps": 3, "pairs_per_step": 2, "eval_every": 0, "checkpoint_every": 0}},
    ):
        try:
            created = site.ask("POST", "/runs", json={"config": config, "name": config["kind"]})
        except httpx.HTTPStatusError as refused:
            print("  not in this version:", refused.response.text[:160])
            continue
        if created is not None:
            site.wait(f"/runs/{created['id']}", lambda run: run["status"] in SETTLED)  # type: ignore[index]
    second.kill()  # what follows waits, and nothing changes any more
    second.wait()
    site.ask("POST", "/runs", json={"config": TINY, "name": "waits"})
    site.ask("POST", "/runs/1/clone", json={})


def say(site: Site) -> None:
    """What people say of groups, where this version lets them."""
    listed = site.ask("GET", "/runs/1/groups", params={"limit": 1})
    group = listed["items"][0]  # type: ignore[index]
    found = site.ask("GET", f"/groups/{group['id']}")
    completions = found["completions"]  # type: ignore[index]
    site.ask("PUT", f"/groups/{group['id']}/bookmark", json={"note": "look again"})
    if "id" in completions[0]:
        site.ask("PUT", f"/completions/{completions[0]['id']}/thumb", json={"thumb": "up"})
        pair = {"better": completions[0]["id"], "worse": completions[1]["id"]}
        site.ask("PUT", f"/groups/{group['id']}/choices", json=pair)


def answers(site: Site) -> dict[str, object]:
    """What the interface says of all that was recorded."""
    listed = site.ask("GET", "/runs?limit=100")
    said: dict[str, object] = {"/runs?limit=100": listed}
    for run in listed["items"]:  # type: ignore[index]
        at = f"/runs/{run['id']}"
        for part in ("", "/metrics", "/checkpoints", "/logs"):
            said[at + part] = site.ask("GET", at + part)
        exported = site.http.get(f"/api/v1{at}/export").raise_for_status().text
        said[f"{at}/export"] = [json.loads(line) for line in exported.splitlines()]
    said["/uploads"] = site.ask("GET", "/uploads")
    return said


def main(folder: Path) -> None:
    """Fill a database, and keep it with what was answered about it."""
    with tempfile.TemporaryDirectory() as home:
        site = Site(Path(home))
        try:
            fill(site)
            say(site)
            said = answers(site)
        finally:
            for process in reversed(site.started):
                process.kill()
                process.wait()
        database = sqlite3.connect(Path(home) / "groupscope.db")
        revision = database.execute("select version_num from alembic_version").fetchone()[0]
        plain = Path(home) / "plain.db"
        database.execute("vacuum into ?", (str(plain),))
        database.close()
        packed = lzma.compress(plain.read_bytes(), preset=9)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{revision}.db.xz").write_bytes(packed)
    (folder / f"{revision}.json.xz").write_bytes(lzma.compress(json.dumps(said, ensure_ascii=False).encode()))
    print(f"revision {revision}: {len(packed):,} bytes, {len(said)} answers")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
