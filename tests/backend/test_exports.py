"""A run as JSON lines and as tables: each value leaves once, as the interface tells it, and no more than a page is held."""

import json
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import recorded
from acting import GRPO, Actor, began
from serving import Backend
from token_traces import trace_of_tokens

from backend import export
from backend.contract.base import to_json
from backend.errors import Conflict
from backend.storage.database import Database

HOSTILE = ["<b>bold</b>", "\x1b[2J\x07", "\u202edesrever", "=cmd()\x85"]


def table(backend: Backend, run_id: int, what: Literal["groups", "metrics", "tokens"]) -> BytesIO:
    return BytesIO(b"".join(backend.client.export_table(run_id, what)))


def rows_of(backend: Backend, run_id: int, what: Literal["groups", "metrics", "tokens"]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(table(backend, run_id, what)).to_pylist()
    return rows


def resumed(backend: Backend) -> int:
    """Two attempts: the second goes on from step 3 of the first one's five, and evaluates again there."""
    run_id = backend.client.create_run(GRPO, name="schön <b>").id
    for attempt, steps in enumerate([range(5), range(3, 9)]):
        actor = Actor(backend.client).begin(steps[0])
        for step in steps:
            metrics = {"reward": step + attempt / 2, "loss": None if step == 3 else 1e-9, "eval/reward": attempt / 3}
            actor.report(step, metrics=metrics, groups=[])
        actor.finish("finished" if attempt else "released")
    return run_id


@pytest.mark.parametrize("page", [4, 20_000])
def test_metrics_are_what_the_interface_says_of_them_as_a_line_byte_for_byte_and_as_a_table(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr(export, "ROWS", page)
    run_id = resumed(backend)
    read = backend.client.metrics(run_id)  # nothing is thinned
    assert [len(series.step) for series in read.series.values()] == [9, 9, 9]
    exported = backend.http.get(f"/api/v1/runs/{run_id}/export").content
    line = {"kind": "metrics", "metrics": read.model_dump(exclude_none=True)}
    assert exported.split(b"\n")[1].decode() == to_json(line)
    rows = [(row["name"], row["step"], row["value"]) for row in rows_of(backend, run_id, "metrics")]
    assert rows == [
        (name, *point)
        for name, series in sorted(read.series.items())
        for point in zip(series.step, series.value, strict=True)
    ]
    assert ("loss", 3, None) in rows, "what was not finite is no missing row"
    assert ("eval/reward", 3, 1 / 3) in rows, "an evaluation that was made again is the last one"


def test_the_metrics_are_never_held_as_a_whole(backend: Backend) -> None:
    chunks = list(export.lines(backend.services.database, resumed(backend)))
    held = [[name for name in (b'"reward"', b'"loss"', b'"eval/reward"') if name in chunk] for chunk in chunks[1:]]
    assert sorted(map(len, held)) == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("kind", [export.lines, export.groups_table, export.metrics_table])
@pytest.mark.parametrize("read", [1, 2])
def test_an_export_across_a_resume_breaks_off_and_passes_for_no_whole_one(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, kind: Callable[[Database, int], Iterator[bytes]], read: int
) -> None:
    monkeypatch.setattr(export, "PAGE", 2)
    monkeypatch.setattr(export, "ROWS", 2)
    first = began(backend.client)
    for step in range(6):
        first.report(step, metrics={"reward": 1.0, "eval/reward": 1.0})
    first.finish("released")
    chunks = kind(backend.services.database, first.run_id)
    for _ in range(read):
        next(chunks)
    second = Actor(backend.client).begin(from_step=2)
    second.report(2, metrics={"reward": 2.0, "eval/reward": 2.0})
    with pytest.raises(Conflict, match="export it again"):
        list(chunks)
    assert list(kind(backend.services.database, first.run_id))


def test_a_run_without_metrics_has_their_line(backend: Backend) -> None:
    run_id = recorded.queue(backend.client)
    exported = backend.http.get(f"/api/v1/runs/{run_id}/export").content
    assert exported.split(b"\n")[1] == b'{"kind":"metrics","metrics":{"run_id":%d,"series":{}}}' % run_id


def test_a_table_of_groups_has_every_completion_with_its_group(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "PAGE", 3)
    actor = began(backend.client)
    for step in range(4):
        groups = [recorded.group_of(index, [1.0, None, 0.1, 0.0], texts=HOSTILE) for index in range(2)]
        actor.report(step, groups=groups, metrics={"reward": 0.5})
    rows = rows_of(backend, actor.run_id, "groups")
    assert len(rows) == 4 * 2 * 4
    assert [row["text"] for row in rows[:4]] == HOSTILE
    assert {row["step"] for row in rows} == set(range(4))
    assert rows[1]["reward"] is None
    group = backend.client.group(rows[0]["group_id"])
    assert rows[0]["advantage"] == group.completions[0].advantage
    assert json.loads(rows[0]["rewards"]) == [reward.model_dump() for reward in group.completions[0].rewards]


def test_tables_of_a_run_under_way_have_the_types_that_a_notebook_expects(backend: Backend) -> None:
    run_id = recorded.queue(backend.client, budget={"steps": 9})
    recorded.train(backend.client, run_id, steps=3, total=9, prompts=2, group_size=4)
    groups = pd.read_parquet(table(backend, run_id, "groups"))
    assert len(groups) == 3 * 2 * 4
    assert set(groups[["reward", "advantage", "kl_mean", "reward_std"]].dtypes) == {np.dtype("float64")}
    assert set(groups[["step", "group_id", "completion_index", "token_count"]].dtypes) == {np.dtype("int64")}
    assert all(isinstance(text, str) for text in groups["text"])
    assert groups.groupby("group_id")["advantage"].sum().abs().max() < 1e-6
    metrics = pd.read_parquet(table(backend, run_id, "metrics"))
    assert metrics["value"].dtype == np.dtype("float64")
    assert list(metrics.pivot(index="step", columns="name", values="value")["reward"].dropna().index) == [0, 1, 2]


def test_tokens_stand_beside_the_completions_that_kept_them(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(export, "PAGE", 1)  # a step's file is then read over several pages
    monkeypatch.setattr(export, "TOKENS", 20)
    actor = began(backend.client)
    for step, group in enumerate([1, 0, 1]):
        trace = trace_of_tokens([["Paris", " \x00é", "\n"], ["no"]], group=group)
        actor.report(step, groups=[recorded.group_of(index, [1.0, 0.0, 0.5]) for index in range(2)], trace=trace)
    files = sorted((backend.home / "traces" / str(actor.run_id)).iterdir())
    files[1].write_bytes(b"damaged")
    rows, plain = rows_of(backend, actor.run_id, "tokens"), rows_of(backend, actor.run_id, "groups")
    assert [{name: row[name] for name in plain[0]} for row in rows] == plain
    kept = [row for row in rows if row["token_ids"] is not None]
    assert [(row["step"], row["group_index"], row["completion_index"]) for row in kept] == [
        (step, group, one) for step, group in ((0, 1), (2, 1)) for one in (0, 1)
    ]
    for row in kept:
        tokens = backend.client.tokens(row["completion_id"])
        assert (row["token_ids"], row["token_texts"]) == (tokens.token_ids, tokens.texts)
        for name in ("sampling_logprob", "logprob", "entropy", "kl", "clipped"):
            assert row[f"token_{name}"] == getattr(tokens, name)
        assert row["token_value"] is None  # only a critic has it
    assert files[1].name in caplog.text
