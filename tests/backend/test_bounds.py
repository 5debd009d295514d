"""Everything that a client can grow has a bound, and the refusal says which and how far."""

import json
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from acting import GRPO, Actor, began, group
from serving import Backend

from backend.contract import protocol as p
from backend.contract.client import ApiError
from backend.contract.records import RunError


def refused(act: Callable[[], object], field: str, words: str) -> None:
    with pytest.raises(ApiError) as caught:
        act()
    assert (caught.value.status, caught.value.code) == (422, "invalid"), caught.value
    details: Any = caught.value.details
    assert [error["field"] for error in details] == [field]
    assert words in details[0]["message"]


def sent(actor: Actor, path: str, **body: Any) -> Callable[[], object]:
    """What the typed client would not send."""
    return lambda: actor.client._to.send("POST", f"/api/v1/worker/{path}", body=body)


@pytest.fixture
def actor(backend: Backend) -> Actor:
    return began(backend.client)  # of 100 steps


# ---- steps


@pytest.mark.parametrize("step", [100, 101, 2**53, 2**63 - 1])
def test_a_step_beyond_the_run_is_refused(actor: Actor, step: int) -> None:
    refused(lambda: actor.report(step), "step", "is beyond run 1, whose last is 99")
    assert actor.client.run(1).progress.step == 0


def test_the_last_step_what_comes_after_it_and_an_attempt_that_begins_there_are_taken(actor: Actor) -> None:
    actor.report(99)
    actor.report(groups=[], step=100, metrics={"eval/pass@1": 1.0})
    actor.save(100)
    refused(lambda: actor.report(groups=[], step=101, metrics={"eval/pass@1": 1.0}), "step", "whose last is 100")
    refused(lambda: actor.save(101), "step", "whose last is 100")
    assert actor.client.run(1).progress.step == 100
    actor.finish("released")
    actor.claimed()
    refused(lambda: actor.start(101), "step", "whose last is 100")
    actor.start(100)


@pytest.mark.parametrize("query", ["after_step", "from_step", "to_step"])
@pytest.mark.parametrize("step", [2**53, 2**63 - 1])
def test_metrics_after_any_step_can_be_asked_for(actor: Actor, query: str, step: int) -> None:
    actor.report(0, metrics={"reward": 1.0})
    for points in ("", "&max_points=4"):
        answer = actor.client._to._http.get(f"/api/v1/runs/1/metrics?{query}={step}{points}")
        assert answer.status_code == (200 if step == 2**53 else 422), answer.text


# ---- reports


def test_two_groups_in_one_place_are_refused_in_words(actor: Actor) -> None:
    refused(
        lambda: actor.report(0, groups=[group(3), group(4), group(3)]), "groups.2.index", "is 3, as groups.0.index is"
    )
    twice = group(0, rewards=(1.0, 0.0))
    twice = twice.model_copy(update={"completions": [twice.completions[1]] * 2})
    refused(lambda: actor.report(0, groups=[twice]), "groups.0.completions.1.index", "number them differently")
    actor.report(0, groups=[group(3), group(4)])


def test_metric_names_log_lines_and_versions_are_bounded_in_a_report_and_in_a_run(actor: Actor) -> None:
    report, names = {"attempt": 1, "seq": 0}, {f"m{n}": 0.0 for n in range(1001)}
    refused(sent(actor, "runs/1/report", **report, step=0, metrics=names), "metrics", "at most 1000")
    refused(sent(actor, "runs/1/report", **report, logs=[{"message": "x"}] * 1001), "logs", "at most 1000")
    worker = {"name": "z", "device": "CPU", "store": "/s", "versions": {str(n): "1" for n in range(65)}}
    refused(sent(actor, "claim", worker=worker), "worker.versions", "at most 64")
    for step in range(2):
        actor.report(step, metrics={f"{step}/{n}": 0.0 for n in range(1000)})
    refused(lambda: actor.report(2, metrics={"one/more": 0.0}), "metrics", "at most 2,000")
    actor.report(2, metrics={"0/0": 1.0})


def test_a_long_failure_is_kept_short_and_not_refused(actor: Actor) -> None:
    error = RunError(code="crash", message="x" * 10**6, details="y" * 10**6)
    actor.client.fail(1, p.Fail(attempt=1, error=error))
    kept = actor.client.run(1).error
    assert kept is not None
    assert (len(kept.message), len(kept.details or "")) == (20_000, 200_000)
    assert kept.message.endswith("x…")


# ---- lists


@pytest.mark.slow
def test_a_step_of_very_many_groups_is_answered_in_pages(actor: Actor) -> None:
    actor.report(0, groups=[group(index) for index in range(1201)])
    first = actor.client._to._http.get("/api/v1/runs/1/steps/0").json()
    assert (len(first["groups"]), first["next_cursor"]) == (500, "500")
    assert actor.client._to._http.get("/api/v1/runs/1/steps/0?limit=1001").status_code == 422
    whole = actor.client.step_scores(1, 0)
    assert [one.index for one in whole.groups] == list(range(1201)), "the client puts the pages together"


def test_lists_show_the_beginning_of_a_long_text_and_the_group_all_of_it(actor: Actor) -> None:
    long = group().model_copy(update={"prompt_text": "p" * 50_000, "prompt": "q" * 50_000})
    actor.report(0, groups=[long])
    listed = actor.client.groups(1).items[0]
    assert (len(listed.prompt_text), len(listed.prompt)) == (20_000, 20_000)
    assert len(actor.client.completions(1).items[0].prompt) == 20_000
    assert len(actor.client.prompts(1).items[0].prompt) == 20_000
    assert len(actor.client.group(listed.id).prompt_text) == 50_000


def test_a_very_large_configuration_is_refused(shared_backend: Backend) -> None:
    launch = {str(number): "x" * 100_000 for number in range(8)}
    config = {"kind": "sample", "prompts": ["2 + 2"], "launch": launch}
    refused(lambda: shared_backend.client.create_run(config), "config", "at most 524,288")


def test_regular_expressions_that_take_long_to_compile_are_refused(shared_backend: Backend) -> None:
    def preflight(patterns: list[str]) -> list[str]:
        reward = {"kind": "pattern", "name": "p", "syntax": "regex", "patterns": patterns}
        messages = shared_backend.client.preflight({**GRPO, "rewards": {"functions": [reward]}}).messages
        return [message.text for message in messages if message.level == "error"]

    wide = "(?i)" + r"[\u0000-\uffff]" * 60
    assert "at most 50" in preflight([wide] * 50)[0]
    assert "at most 50" in preflight(["[é-ü]" * 51])[0]
    assert preflight([r"[\u4e00-\u9fff]" * 10, "[a-z][0-9]" * 90]) == []


# ---- uploads


def test_a_preview_is_short_whatever_the_rows_are(backend: Backend) -> None:
    row = json.dumps({"prompt": "p" * 10**6, "answer": ["a" * 10**6]}) + "\n"
    upload = backend.client.upload("x", (row * 20).encode())
    preview = backend.client.preview_upload(upload.id)
    assert len(preview.rows) == 20
    assert preview.rows[0]["prompt"] == "p" * 2000 + " …"
    assert preview.rows[0]["answer"] == '["' + "a" * 1998 + " …"
    wide = "{" + ", ".join(f'"{n}": "{"x" * 5000}"' for n in range(256)) + "}\n"
    second = backend.client.upload("y", (wide * 20).encode())
    answer = backend.http.get(f"/api/v1/uploads/{second.id}")
    assert len(answer.content) < 2 * 2**20
    assert 1 <= len(answer.json()["rows"]) < 20


def test_an_upload_of_an_earlier_version_can_still_be_looked_at(backend: Backend) -> None:
    upload = backend.client.upload("x", b'{"prompt": "a"}')
    path = backend.home / "uploads" / f"{upload.id}.jsonl"
    path.write_bytes(b'{"prompt": 1e999, "answer": ' + b"[" * 300 + b"]" * 300 + b', "other": "fine"}')
    with sqlite3.connect(backend.home / "groupscope.db") as database:
        names = ",".join(f'"c{number}"' for number in range(5000))
        database.execute(f"UPDATE upload SET columns = '[{names}]'")
    database.close()
    preview = backend.client.preview_upload(upload.id)
    assert len(preview.upload.columns) == 256
    assert preview.rows[0]["other"] == "fine"
    assert str(preview.rows[0]["prompt"]).startswith("(a value that holds a number that is not finite")
    assert "64 levels" in str(preview.rows[0]["answer"])
    assert len(backend.client.uploads()[0].columns) == 256


def test_what_a_killed_backend_had_begun_to_write_is_gone_after_the_next_start(
    start_backend: Callable[..., Backend], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    torn = [home / "uploads" / "tmpabc.partial", home / "traces" / "1" / "tmpdef.partial"]
    kept = [home / "uploads" / "1.jsonl", home / "traces" / "1" / "1-0-0.parquet"]
    for path in (*torn, *kept):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    start_backend()
    assert not any(path.exists() for path in torn)
    assert all(path.exists() for path in kept)


# ---- free JSON


@pytest.mark.parametrize("value", ["1e999", "NaN", "[" * 100 + "]" * 100, '{"a":' * 100 + "1" + "}" * 100])
@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/api/v1/runs/preflight", '{"config": {"kind": "grpo", "x": %s}}', r"x"),
        ("/api/v1/runs/1/clone", '{"overrides": {"task.kind": %s}}', r"overrides.task.kind"),
        ("/api/v1/runs", '{"config": {"kind": "sample", "prompts": ["x"], "launch": {"a": %s}}}', r"launch.a"),
    ],
)
def test_free_json_that_could_not_be_answered_is_refused_by_field(
    shared_backend: Backend, path: str, body: str, field: str, value: str
) -> None:
    shared_backend.client.create_run(GRPO)
    answer = shared_backend.http.post(path, content=body % value, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422, answer.text
    details = answer.json()["error"]["details"]
    assert [error["field"] for error in details] == [field]
    assert re.search("not finite|64 levels", details[0]["message"])
