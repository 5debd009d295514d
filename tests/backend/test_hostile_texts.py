"""Texts that want to be something else: stored so that they come back as they were, on every way out, and bounded."""

import json
import sqlite3
from contextlib import closing
from io import BytesIO

import hostile
import pyarrow.parquet as pq
import pytest
from acting import Actor, began, group
from serving import Backend

from backend.contract.protocol import LogLine
from dashboard.downloads.report import gather, report

# What is sent, and what is kept of it: all but NUL and lone halves of a pair, which no database stores.
GOLDEN = {
    "a\x00b": "a\ufffdb",
    "\x1b[2J\x1b[31mred": "\x1b[2J\x1b[31mred",
    "\x1b]8;;http://evil.example\x07here\x1b]8;;\x07": "\x1b]8;;http://evil.example\x07here\x1b]8;;\x07",
    "\x1b]52;c;ZXZpbA==\x07": "\x1b]52;c;ZXZpbA==\x07",
    "ring\x07": "ring\x07",
    "\x9b2J\x85\u2028": "\x9b2J\x85\u2028",
    "\u202etxet desrever": "\u202etxet desrever",
    "half \ud83d of a pair": "half \ufffd of a pair",
    "<script>alert(1)</script>": "<script>alert(1)</script>",
    "![x](http://evil.example/x.png)": "![x](http://evil.example/x.png)",
    "[click](javascript:alert(1))": "[click](javascript:alert(1))",
    '=cmd|" /C calc"!A0': '=cmd|" /C calc"!A0',
    **{formula: formula for formula in ("+cmd()", "-cmd()", "@cmd()", "\t=cmd()", "\r=cmd()")},
    hostile.CONTROLS: hostile.CONTROLS.replace("\x00", "\ufffd"),
}
LONGEST = 2**22  # characters of a text


def record(backend: Backend, texts: list[str]) -> Actor:
    """A run of one group whose completions are these, sent as JSON that is not cleaned before."""
    actor = began(backend.client)
    sent = group(rewards=[1.0, *[0.0] * (len(texts) - 1)]).model_dump(mode="json")
    for completion, text in zip(sent["completions"], texts, strict=True):
        completion["text"] = text
    body = {"attempt": 1, "seq": 0, "step": 0, "groups": [sent]}
    secret = {"Groupscope-Claim": backend.client.secrets[actor.run_id, 1], "Content-Type": "application/json"}
    answer = backend.http.post(f"/api/v1/worker/runs/{actor.run_id}/report", content=json.dumps(body), headers=secret)
    assert answer.status_code == 200, answer.text
    return actor


def test_every_hostile_text_comes_back_from_the_database_the_api_and_the_exports_as_it_was(backend: Backend) -> None:
    actor = record(backend, list(GOLDEN))
    client, run_id, kept = backend.client, actor.run_id, list(GOLDEN.values())
    with closing(sqlite3.connect(backend.home / "groupscope.db")) as database:
        assert [text for (text,) in database.execute("SELECT text FROM completion ORDER BY id")] == kept
    [listed] = client.groups(run_id).items
    assert [one.text for one in client.group(listed.id).completions] == kept
    assert {one.excerpt for one in client.completions(run_id, limit=100).items} == set(kept)
    lines = b"".join(client.export(run_id)).splitlines()
    [exported] = [json.loads(line)["group"] for line in lines if json.loads(line)["kind"] == "group"]
    assert [one["text"] for one in exported["completions"]] == kept
    rows = pq.read_table(BytesIO(b"".join(client.export_table(run_id, "groups")))).to_pylist()
    assert [row["text"] for row in rows] == kept
    assert b"\x1b" not in b"".join(lines)


def test_a_report_of_hostile_texts_has_no_character_that_steers(backend: Backend) -> None:
    actor = record(backend, list(GOLDEN))
    page = report(gather(backend.client, actor.run_id))
    assert "=cmd|" in page
    assert {c for c in page if not c.isprintable() and c not in "\n"} == set()
    assert "<script" not in page
    assert 'href="javascript' not in page


@pytest.mark.slow
def test_a_line_of_megabytes_is_kept_whole_or_refused_by_name_and_words_about_it_are_cut(backend: Backend) -> None:
    longest = "x" * (LONGEST - 1) + "\u202e"
    actor = record(backend, [longest, "short"])
    client, run_id = backend.client, actor.run_id
    [listed] = client.groups(run_id).items
    assert client.group(listed.id).completions[0].text == longest
    assert longest in b"".join(client.export(run_id)).decode()
    assert len(report(gather(client, run_id))) < 10 * 2**20
    beyond = group().model_dump(mode="json")
    beyond["completions"][0]["text"] = "x" * 10 * 2**20
    body = {"attempt": 1, "seq": 1, "step": 1, "groups": [beyond]}
    secret = {"Groupscope-Claim": client.secrets[run_id, 1]}
    answer = backend.http.post(f"/api/v1/worker/runs/{run_id}/report", json=body, headers=secret)
    assert answer.status_code == 422
    assert answer.json()["error"]["details"][0]["field"] == "groups.0.completions.0.text"
    assert len(answer.content) < 2_000
    actor.seq = 1
    actor.report(1, logs=[LogLine(level="error", message="x" * 10 * 2**20)])
    assert len(client.logs(run_id).items[-1].message) <= 20_000
