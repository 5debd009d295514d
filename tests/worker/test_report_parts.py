"""A step of any size is reported: in parts that the backend takes, all its groups once, and what is left out is said."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from acting import GRPO, Actor, completion, group
from pydantic import BaseModel
from serving import Backend

from backend.contract.conversation import Turn
from backend.contract.groups import GroupReport, RewardScore
from backend.contract.protocol import REPORT_BYTES, LogLine, Report, TraceFile
from backend.contract.report_parts import in_parts
from worker import reporter
from worker.reporter import Channels, Place, Reporter, StepContent
from worker.rollout.engine import quiet
from worker.store import Store

TRACE = TraceFile(sha256="0" * 64, data="x" * 400, rows=1)


def step(*groups: GroupReport, **fields: object) -> Report:
    values: dict[str, Any] = {"attempt": 2, "seq": 7, "step": 3, "metrics": {"reward": 0.5}, "groups": groups}
    return Report.model_validate(values | fields)


def size(report: Report) -> int:
    return len(report.model_dump_json().encode())


def large(index: int, *texts: str, error: str | None = None) -> GroupReport:
    scores = [RewardScore(name="r", raw=None, weight=1.0, error=error)]
    members = [completion(at, text).model_copy(update={"rewards": scores}) for at, text in enumerate(texts)]
    return group(index).model_copy(update={"completions": members})


def test_a_report_that_fits_or_has_no_groups_is_sent_as_it_is() -> None:
    lines = Report(attempt=1, seq=0, logs=[LogLine(message="x" * 5000)])
    for report in (step(group(0), group(1), trace=TRACE), lines):
        assert list(in_parts(report, room=2000)) == [report]


def test_a_large_step_comes_in_parts_with_each_group_once_and_the_rest_last() -> None:
    groups = [large(index, "a" * 300, "é" * 300) for index in range(7)]
    report = step(*groups, logs=[LogLine(message="said")], seconds=4.0)
    parts = list(in_parts(report, room=4000))
    assert len(parts) > 2
    assert [one.seq for one in parts] == list(range(7, 7 + len(parts)))
    assert [one for part in parts for one in part.groups] == groups
    assert [one.part for one in parts] == [True] * (len(parts) - 1) + [False]
    assert [one.trained_step for one in parts] == [None] * (len(parts) - 1) + [3]
    assert all(size(one) < 4000 + 500 for one in parts)
    assert not any(one.metrics or one.logs for one in parts[:-1])
    rest = parts[-1]
    assert rest == report.model_copy(update={"seq": rest.seq, "groups": rest.groups})


def test_token_traces_that_do_not_fit_beside_their_groups_are_left_out_and_the_log_says_so() -> None:
    [only] = in_parts(step(large(0, "a" * 500, "b"), trace=TRACE), room=1400)
    assert only.trace is None
    assert [one.message for one in only.logs] == [
        "step 3: its groups and token traces are too large for one report: no traces are kept"
    ]


@pytest.mark.parametrize("odd", ["a", "\x01", "\U0001f600"])  # one, six and four bytes each
def test_of_a_group_that_is_too_large_alone_the_ends_of_texts_are_kept_and_the_log_says_so(odd: str) -> None:
    text = f"begins{odd * 30_000}ends"
    whole, too_large = group(0), large(1, text, text, "short", error=f"begins{odd * 9_000}ends")
    parts = list(in_parts(step(whole, too_large), room=20_000))
    first, kept = (one for part in parts for one in part.groups)
    assert first == whole
    assert all(size(part) < 20_500 for part in parts)
    assert kept.completions[2].text == "short"
    for shown in (*(one.text for one in kept.completions[:2]), str(kept.completions[0].rewards[0].error)):
        assert shown.startswith("begins")
        assert shown.endswith("ends")
        assert "…" in shown
    assert [one.message for one in parts[-1].logs] == [
        "step 3: too large for one report; only the ends of the texts are kept of group 1"
    ]


def test_of_a_conversation_of_very_many_turns_as_many_are_kept_as_fit() -> None:
    talks = large(0, *["\n".join(["a"] * 4000)] * 2)
    turns = [Turn(role="assistant", length=1)] * 4000
    members = [one.model_copy(update={"turns": turns}) for one in talks.completions]
    [part] = in_parts(step(talks.model_copy(update={"completions": members})), room=20_000)
    assert size(part) < 20_500
    Report.model_validate_json(part.model_dump_json())  # the turns are those of the text


def reporting(
    place: Path, send: Callable[[str, BaseModel], None], attempt: int, tell: Callable[[Reporter], None]
) -> None:
    channels = Channels(send, quiet, lambda: "nothing", quiet, lambda: False)
    one = Reporter(Place(1, attempt, Store(place), "store", None, "CPU", {}), channels, total_steps=3, elapsed=0.0)
    with one:
        tell(one)


def test_reports_after_one_in_parts_go_on_with_its_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporter, "in_parts", partial(in_parts, room=2000))
    sent: list[Report] = []

    def tell(one: Reporter) -> None:
        one.step(0, lambda: StepContent({"reward": 1.0}, [large(index, "a" * 900) for index in range(4)]))
        one.log("info", "afterwards")

    reporting(tmp_path, lambda _, message: sent.append(message), 1, tell)  # type: ignore[arg-type]
    assert [one.seq for one in sent] == list(range(len(sent)))
    assert len(sent) > 3
    assert sent[-1].logs[0].message == "afterwards"


@pytest.mark.thorough
def test_a_step_that_is_larger_than_a_body_may_be_arrives_whole(backend: Backend, tmp_path: Path) -> None:
    backend.client.create_run(GRPO)
    actor = Actor(backend.client).begin()
    groups = [large(index, "a" * 2**20, "b" * 2**20) for index in range(33)]
    assert sum(size(step(one)) for one in groups) > REPORT_BYTES
    reporting(
        tmp_path,
        lambda kind, message: getattr(backend.client, kind)(actor.run_id, message),
        actor.attempt,
        lambda one: one.step(0, lambda: StepContent({"reward": 1.0}, groups)),
    )
    assert backend.client.run(actor.run_id).progress.step == 1
    listed = backend.client.groups(actor.run_id, sort="index").items
    assert [one.index for one in listed] == list(range(33))
    assert [len(one.text) for one in backend.client.group(listed[-1].id).completions] == [2**20, 2**20]
