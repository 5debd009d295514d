import json
from io import BytesIO

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import recorded
from serving import Backend
from token_traces import trace_of_tokens

from backend import export
from backend.contract.client import ApiError

HOSTILE = ["<b>bold</b>", "\x1b[2J\x07", "\u202edesrever", "=cmd()\x85"]


@pytest.mark.slow
def test_a_table_of_groups_has_every_completion_with_its_group(backend: Backend) -> None:
    run_id = recorded.queue(backend.client)
    claim = recorded.claim(backend.client, run_id)
    for step in range(60):  # more than one page
        groups = [recorded.group_of(index, [1.0, None, 0.1, 0.0], texts=HOSTILE) for index in range(2)]
        backend.client.report(
            run_id,
            recorded.p.Report(attempt=claim.attempt, seq=step, step=step, groups=groups, metrics={"reward": 0.5}),
        )
    rows = pq.read_table(BytesIO(b"".join(backend.client.export_table(run_id, "groups")))).to_pylist()
    assert len(rows) == 60 * 2 * 4
    assert [row["text"] for row in rows[:4]] == HOSTILE
    assert {row["step"] for row in rows} == set(range(60))
    assert rows[1]["reward"] is None
    group = backend.client.group(rows[0]["group_id"])
    assert rows[0]["advantage"] == group.completions[0].advantage
    assert json.loads(rows[0]["rewards"]) == [reward.model_dump() for reward in group.completions[0].rewards]


def test_a_table_of_metrics_tells_what_was_not_finite_from_what_is_missing(backend: Backend) -> None:
    run_id = recorded.queue(backend.client)
    claim = recorded.claim(backend.client, run_id)
    for step, metrics in enumerate([{"reward": 0.5, "kl": None}, {"reward": 0.0}]):
        backend.client.report(run_id, recorded.p.Report(attempt=claim.attempt, seq=step, step=step, metrics=metrics))
    rows = pq.read_table(BytesIO(b"".join(backend.client.export_table(run_id, "metrics")))).to_pylist()
    assert [(row["name"], row["step"], row["value"]) for row in rows] == [
        ("kl", 0, None),
        ("reward", 0, 0.5),
        ("reward", 1, 0.0),
    ]


@pytest.mark.slow
def test_a_table_of_metrics_longer_than_a_page_is_whole_and_in_order(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "ROWS", 7)
    run_id = recorded.queue(backend.client)
    recorded.train(backend.client, run_id, steps=9, total=9, prompts=1, group_size=2)
    table = pq.read_table(BytesIO(b"".join(backend.client.export_table(run_id, "metrics"))))
    read = backend.client.metrics(run_id).series
    assert [(row["name"], row["step"], row["value"]) for row in table.to_pylist()] == [
        (name, *point) for name in sorted(read) for point in zip(read[name].step, read[name].value, strict=True)
    ]


def test_tables_of_a_run_under_way_have_the_types_that_a_notebook_expects(backend: Backend) -> None:
    run_id = recorded.queue(backend.client, budget={"steps": 9})
    recorded.train(backend.client, run_id, steps=3, total=9, prompts=2, group_size=4)
    groups = pd.read_parquet(BytesIO(b"".join(backend.client.export_table(run_id, "groups"))))
    assert len(groups) == 3 * 2 * 4
    assert set(groups[["reward", "advantage", "kl_mean", "reward_std"]].dtypes) == {np.dtype("float64")}
    assert set(groups[["step", "group_id", "completion_index", "token_count"]].dtypes) == {np.dtype("int64")}
    assert all(isinstance(text, str) for text in groups["text"])
    assert groups.groupby("group_id")["advantage"].sum().abs().max() < 1e-6
    metrics = pd.read_parquet(BytesIO(b"".join(backend.client.export_table(run_id, "metrics"))))
    assert metrics["value"].dtype == np.dtype("float64")
    assert list(metrics.pivot(index="step", columns="name", values="value")["reward"].dropna().index) == [0, 1, 2]


def test_a_run_that_is_not_there_has_no_table(backend: Backend) -> None:
    with pytest.raises(ApiError, match="no run"):
        list(backend.client.export_table(7, "groups"))


def test_an_evaluation_that_a_resumed_run_makes_again_is_one_row_the_last(backend: Backend) -> None:
    run_id = recorded.queue(backend.client)
    claim = recorded.claim(backend.client, run_id)
    evaluation = {"eval/reward": 0.25, "eval/pass@1": 0.5}
    backend.client.report(run_id, recorded.p.Report(attempt=claim.attempt, seq=0, step=0, metrics=evaluation))
    recorded.finish(backend.client, run_id, claim, "released")
    again = recorded.claim(backend.client, run_id)
    report = recorded.p.Report(attempt=again.attempt, seq=0, step=0, metrics=evaluation | {"eval/reward": 0.75})
    backend.client.report(run_id, report)
    rows = pq.read_table(BytesIO(b"".join(backend.client.export_table(run_id, "metrics")))).to_pylist()
    assert [(row["name"], row["value"]) for row in rows] == [("eval/pass@1", 0.5), ("eval/reward", 0.75)]


def test_tokens_stand_beside_the_completions_that_kept_them(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(export, "PAGE", 1)  # a step's file is then read over several pages
    monkeypatch.setattr(export, "TOKENS", 20)
    run_id = recorded.queue(backend.client)
    claim = recorded.claim(backend.client, run_id)
    for step, group in enumerate([1, 0, 1]):
        trace = trace_of_tokens([["Paris", " \x00é", "\n"], ["no"]], group=group)
        groups = [recorded.group_of(index, [1.0, 0.0, 0.5]) for index in range(2)]
        sent = recorded.p.Report(attempt=claim.attempt, seq=step, step=step, groups=groups, trace=trace)
        backend.client.report(run_id, sent)
    files = sorted((backend.home / "traces" / str(run_id)).iterdir())
    files[1].write_bytes(b"damaged")
    rows = pq.read_table(BytesIO(b"".join(backend.client.export_table(run_id, "tokens")))).to_pylist()
    plain = pq.read_table(BytesIO(b"".join(backend.client.export_table(run_id, "groups")))).to_pylist()
    assert [{name: row[name] for name in plain[0]} for row in rows] == plain
    kept = [row for row in rows if row["token_ids"] is not None]
    assert [(row["step"], row["group_index"], row["completion_index"]) for row in kept] == [
        (step, group, one) for step, group in ((0, 1), (2, 1)) for one in (0, 1)
    ]
    for row in kept:
        trace = backend.client.tokens(row["completion_id"])
        assert (row["token_ids"], row["token_texts"]) == (trace.token_ids, trace.texts)
        for name in ("sampling_logprob", "logprob", "entropy", "kl", "clipped"):
            assert row[f"token_{name}"] == getattr(trace, name)
        assert row["token_value"] is None  # only a critic has it
    assert files[1].name in caplog.text
