"""A backend that has something under small numbers, so that requests which were drawn at random find what they ask for."""

import json
from pathlib import Path

import recorded
from processes import Site

from backend.contract import protocol as p

HELD = range(1, 9)  # in a worker's hands, whose attempt is 1
ENDING = range(9, 17)  # the same, to be ended
FREE = range(17, 25)  # finished or waiting, to be deleted


def fill(site: Site) -> None:
    """Runs in every state with groups, traces and judgements, a checkpoint with files, uploads, and a sweep."""
    client = site.client
    for number in (*HELD, *ENDING, *FREE):
        run_id = recorded.queue(client, f"run {number}")
        if number in HELD or number == FREE[0]:
            claimed = recorded.train(client, run_id, steps=2, total=100, prompts=2, group_size=4, traced=True)
            _save(site, run_id, claimed.attempt)
            if number == FREE[0]:
                recorded.finish(client, run_id, claimed)
        elif number in ENDING:
            recorded.claim(client, run_id)
    for group in range(1, 10):
        first = client.group(group).completions
        client.people.bookmark(group, "worth a second look")
        client.people.choose(group, better=first[0].id, worse=first[1].id)
        client.people.thumb(first[2].id, "up")
    rows = [{"prompt": f"{n} + {n}", "answer": str(2 * n)} for n in range(30)]
    for name in ("sums", "the same sums"):
        client.upload(name, "".join(json.dumps(row) + "\n" for row in rows).encode())
    client.create_sweep("two", [{"config": {"kind": "grpo"}, "name": name} for name in "ab"])


def _save(site: Site, run_id: int, attempt: int) -> None:
    """A checkpoint in the backend's own store, to be downloaded."""
    store, path = site.home / "checkpoints", Path(f"run-{run_id}") / "step-1"
    (store / path / "model").mkdir(parents=True)
    (store / path / "model" / "config.json").write_text("{}")
    sent = p.CheckpointReport(attempt=attempt, step=1, store=str(store), path=str(path), sha256="0" * 64, size_bytes=2)
    site.client.checkpoint(run_id, sent)
