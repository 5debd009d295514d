"""Reports are numbered, sending one twice is harmless, and what they carry comes back as it was."""

import hashlib
import json
from typing import Any

import bombs
import httpx
import pyarrow as pa
import pytest
from acting import Actor, api_error, began, completion, group
from plans import asked_here
from processes import wait_until
from recorded import THEIRS
from serving import Backend
from sqlalchemy import select

from backend import events
from backend.contract import protocol as p
from backend.contract.client import ApiError
from backend.contract.spool import may_pass
from backend.queue import reports as reports_module
from backend.storage import tables
from backend.storage.tables import metadata
from backend.telemetry import groups


def send(backend: Backend, actor: Actor, body: str, *, to: str = "report") -> httpx.Response:
    secret = backend.client.secrets[actor.run_id, actor.attempt]
    headers = {"Content-Type": "application/json", p.SECRET_HEADER: secret}
    return backend.http.post(f"/api/v1/worker/runs/{actor.run_id}/{to}", content=body.encode(), headers=headers)


def refused(actor: Actor, *reports: p.Report) -> str:
    """The code with which the backend refuses a report, or those that come together."""
    send, body = actor.client.reports, p.Reports(attempt=actor.attempt, reports=list(reports))
    with pytest.raises(ApiError) as caught:
        send(actor.run_id, body) if len(reports) > 1 else actor.client.report(actor.run_id, *reports)
    return caught.value.code


def test_the_same_report_twice_is_stored_once_and_another_body_under_its_number_is_refused(backend: Backend) -> None:
    actor = began(backend.client)
    once = p.Report(attempt=1, seq=0, step=0, metrics={"reward": 1.0}, groups=[group()], logs=[p.LogLine(message="x")])
    for expected in (False, True, True):
        assert backend.client.report(actor.run_id, once).duplicate is expected
    assert refused(actor, once.model_copy(update={"metrics": {"reward": 2.0}})) == "report_conflict"
    assert refused(actor, once.model_copy(update={"seq": 1})) == "report_conflict", "the groups of a step come once"
    assert len(backend.client.groups(actor.run_id).items) == len(backend.client.logs(actor.run_id).items) == 1
    assert backend.client.metrics(actor.run_id).series["reward"].value == [1.0]
    actor.finish()
    assert backend.client.report(actor.run_id, once).duplicate


def test_the_completions_of_a_report_are_one_statement_since_each_writes_the_index_of_their_texts(
    backend: Backend,
) -> None:
    actor, database = began(backend.client), backend.services.database
    sent = [group(index, rewards=[0.0, 1.0] * 4) for index in range(16)]
    with database.write() as tx, asked_here(database.writer) as asked:
        groups.store(tx, actor.run_id, actor.attempt, [(0, sent, ())])
    rows = [statement.count("(?") for statement, _ in asked if statement.startswith("INSERT INTO completion ")]
    assert rows == [128]


def test_a_step_without_groups_moves_the_run_on_and_an_evaluation_does_not(backend: Backend) -> None:
    actor = began(backend.client)
    for seq, (step, metrics) in enumerate(
        [(0, {"eval/accuracy": 0.5}), (0, {"loss": 0.7}), (1, {"eval/accuracy": 0.9})]
    ):
        sent = p.Report(attempt=actor.attempt, seq=seq, step=step, metrics=metrics)
        backend.client.report(actor.run_id, sent)
        assert backend.client.run(actor.run_id).progress.step == (1 if seq else 0)
    again = p.Report(attempt=actor.attempt, seq=3, step=0, metrics={"loss": 0.6})
    assert refused(actor, again) == "report_conflict"


def part(seq: int, step: int, *indices: int, **fields: object) -> p.Report:
    values = {"attempt": 1, "seq": seq, "step": step, "groups": [group(index) for index in indices], "part": True}
    return p.Report.model_validate(values | fields)


def test_a_step_in_parts_is_done_with_its_last_report_and_a_part_sent_twice_is_stored_once(backend: Backend) -> None:
    actor = began(backend.client)
    for seq, indices in enumerate([(0, 1), (2,)]):
        for expected in (False, True):
            assert backend.client.report(actor.run_id, part(seq, 0, *indices)).duplicate is expected
        assert backend.client.run(actor.run_id).progress.step == 0
    actor.seq = 2
    actor.report(0, metrics={"reward": 1.0}, groups=[group(3)])
    assert backend.client.run(actor.run_id).progress.step == 1
    assert [one.index for one in backend.client.groups(actor.run_id, sort="index").items] == [0, 1, 2, 3]
    assert backend.client.metrics(actor.run_id).series["reward"].step == [0]
    [step] = backend.client.steps(actor.run_id)
    assert sum(step.states.values()) == 4


def test_a_part_brings_new_groups_of_a_step_that_is_not_done_and_nothing_else(backend: Backend) -> None:
    actor = began(backend.client)
    backend.client.report(actor.run_id, part(0, 0, 0))
    wrong = [
        (part(1, 0, 1, 0), "report_conflict"),
        (part(1, 0, 0, part=False), "report_conflict"),
        (part(1, 0, 1, metrics={"reward": 1.0}), "invalid"),
        (part(1, 0), "invalid"),
        (part(1, 10_000_000, 1), "invalid"),
    ]
    for sent, code in wrong:
        assert refused(actor, sent) == code
    actor.seq = 1
    actor.report(0, metrics={"reward": 1.0}, groups=[group(1)])
    assert refused(actor, part(2, 0, 2)) == "report_conflict"
    assert len(backend.client.groups(actor.run_id).items) == 2


def test_a_part_of_a_step_that_its_worker_did_not_complete_is_in_no_list_once_the_step_is_made_again(
    backend: Backend,
) -> None:
    actor = began(backend.client)
    backend.client.report(actor.run_id, part(0, 0, 0, 1))
    backend.clock.now += 3600
    next_one = Actor(backend.client, "two").begin()
    assert next_one.attempt == 2
    next_one.report(0, groups=[group(0)])
    assert [one.attempt for one in backend.client.groups(actor.run_id).items] == [2]


def test_the_ends_of_the_best_and_the_worst_text_stand_in_the_list(backend: Backend) -> None:
    actor = began(backend.client)
    rows = [completion(0, "x" * 200 + "wrong", 0.0), completion(1, "right", 1.0), completion(2, "?", None)]
    actor.report(0, groups=[group().model_copy(update={"completions": rows})])
    [listed] = backend.client.groups(actor.run_id).items
    assert (listed.best, listed.worst) == ("right", "x" * 75 + "wrong")


def test_a_value_that_was_not_finite_is_neither_zero_nor_missing(backend: Backend) -> None:
    actor = began(backend.client)
    metrics = {"kl": None, "reward": 0.0, "step_time": 1.7e308}
    actor.report(0, metrics=metrics, groups=[group(rewards=[None, 0.0, 1.0])])
    assert backend.client.runs().items[0].progress.eta_seconds is None, "a time too large to reckon with"
    series = backend.client.metrics(actor.run_id).series
    assert (series["kl"].value, series["reward"].value) == ([None], [0.0])
    assert "entropy" not in series
    [listed] = backend.client.groups(actor.run_id).items
    assert (listed.rewards, listed.scored) == ([None, 0.0, 1.0], 2)
    first = backend.client.group(listed.id).completions[0]
    assert (first.reward, first.advantage, first.rewards[0].raw) == (None, None, None)


EMPTY = json.dumps([{**group().model_dump(), "completions": []}])


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ('"step": 0, "metrics": {"reward": NaN}', "metrics.reward", "must be a finite number"),
        ('"step": 0, "metrics": {"reward": -Infinity}', "metrics.reward", "must be a finite number"),
        ('"step": 0, "metrics": {"reward": 1e999}', "metrics.reward", "must be a finite number"),
        ('"metrics": {"reward": 1.0}', "step", "is required"),
        (f'"step": {2**63}', "step", "must be at most"),
        (f'"seq": {2**63}', "seq", "must be at most"),
        (f'"step": 0, "groups": {EMPTY}', "groups.0.completions", "must have at least 1 entry"),
    ],
)
def test_a_wrong_value_is_refused_at_its_field(backend: Backend, fields: str, field: str, message: str) -> None:
    answer = send(backend, began(backend.client), f'{{"attempt": 1, "seq": 0, {fields}}}')
    assert answer.status_code == 422
    [wrong] = answer.json()["error"]["details"]
    assert wrong["field"] == field
    assert message in wrong["message"]


@pytest.mark.parametrize("body", ["{", "[" * 100_000, '{"attempt": ' + "9" * 5000 + "}", "", '"x"', "null"])
def test_a_body_that_is_no_report_is_refused_in_the_one_shape(backend: Backend, body: str) -> None:
    answer = send(backend, began(backend.client), body)
    assert answer.status_code in (400, 422)
    assert set(answer.json()["error"]) == {"code", "message", "details"}


TRACE = bombs.trace_of(
    pa.table(
        {
            "group": [0],
            "completion": [1],
            "token_ids": [[5, 6]],
            "text": ["4€".encode()],
            "text_offsets": [[0, 2, 4]],
            "sampling_logprob": [[-0.5, float("nan")]],
            "clipped": [[False, True]],
            "advantage": [[-0.5, -0.5]],
        }
    ),
    1,
)


def test_the_tokens_of_a_completion_come_back_unless_their_file_was_damaged(backend: Backend) -> None:
    actor = began(backend.client)
    actor.report(0, trace=TRACE)
    whole = backend.client.group(backend.client.groups(actor.run_id).items[0].id)
    assert [one.has_trace for one in whole.completions] == [False, True]
    tokens = backend.client.tokens(whole.completions[1].id)
    assert (tokens.token_ids, tokens.texts) == ([5, 6], ["4\ufffd", "\ufffd\ufffd"])
    assert (tokens.sampling_logprob, tokens.clipped, tokens.advantage) == ([-0.5, None], [False, True], [-0.5, -0.5])
    assert tokens.kl is None
    with api_error(404, "not_found"):
        backend.client.tokens(whole.completions[0].id)
    [file] = (backend.home / "traces").rglob("*.parquet")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ApiError, match="damaged"):
        backend.client.tokens(whole.completions[1].id)


@pytest.mark.parametrize(
    "change", [{"sha256": "0" * 64}, {"data": "***"}, {"data": "", "sha256": hashlib.sha256(b"").hexdigest()}]
)
def test_a_broken_trace_is_refused_and_leaves_nothing(backend: Backend, change: dict[str, str]) -> None:
    actor = began(backend.client)
    with api_error(422):
        actor.report(0, trace=TRACE.model_copy(update=change))
    assert not list((backend.home).rglob("*.parquet*"))
    assert backend.client.groups(actor.run_id).items == []


def test_a_refused_report_leaves_no_trace_file_one_repeated_keeps_it_and_it_goes_with_its_run(backend: Backend) -> None:
    actor = began(backend.client)
    actor.report(0, trace=TRACE)
    actor.seq = 0
    with pytest.raises(ApiError, match="another body"):
        actor.report(0, trace=TRACE, metrics={"reward": 1.0})
    backend.clock.now += 31
    second = Actor(backend.client, "two").begin()
    with pytest.raises(ApiError, match="lost run"):
        actor.report(1, trace=TRACE)
    assert [file.name[:4] for file in backend.home.rglob("*.parquet")] == ["1-0-"]
    second.finish()
    backend.client.delete_run(actor.run_id)
    wait_until(lambda: not list(backend.home.rglob("*.parquet")), "the traces are removed")


def recording(backend: Backend, key: str = "k" * 16) -> p.Claim:
    claim = backend.client.record(THEIRS.model_copy(update={"key": key}))
    backend.client.start(claim.run_id, p.Start(attempt=1, from_step=0, device=""))
    return claim


def test_late_metrics_are_added_to_their_step_change_none_of_it_and_are_for_recorded_runs(backend: Backend) -> None:
    run_id = recording(backend).run_id
    for step in range(3):
        backend.client.report(run_id, p.Report(attempt=1, seq=step, step=step, metrics={"reward": float(step)}))
    late = p.Report(attempt=1, seq=7, step=1, metrics={"reward": 9.0, "loss": 0.5, "eval/x": 0.25}, late=True)
    assert [backend.client.report(run_id, late).duplicate for _ in range(2)] == [False, True]
    series = backend.client.metrics(run_id).series
    assert (series["reward"].value, series["loss"].step, series["eval/x"].step) == ([0.0, 1.0, 2.0], [1], [1])
    assert backend.client.run(run_id).progress.step == 3
    assert backend.client.run(run_id).summary == {"reward": 2.0, "loss": 0.5, "eval/x": 0.25}
    probe = group(0).model_copy(update={"state": "probe"})
    backend.client.report(run_id, p.Report(attempt=1, seq=8, step=5, groups=[probe]))
    assert backend.client.run(run_id).progress.step == 3, "groups of an evaluation alone complete no step"
    assert [one.step for one in backend.client.steps(run_id)] == [5]
    with pytest.raises(ApiError, match="needs metrics, and brings nothing else"):
        backend.client.report(run_id, p.Report(attempt=1, seq=9, step=0, late=True, groups=[group(0)]))
    with pytest.raises(ApiError, match="is for recorded runs"):
        backend.client.report(began(backend.client).run_id, late)


def many_reports(attempt: int) -> list[p.Report]:
    """What a run of some steps reports: evaluations twice, steps with groups, tokens, metrics that are missing, and log lines."""
    bodies: list[dict[str, Any]] = []
    for step in range(12):
        if step % 4 == 0:
            bodies.append({"step": step, "metrics": {"eval/accuracy": step / 10, "eval/odd": None}})
        if step == 9:  # a program that logs an evaluation before it ends the step
            bodies.append({"step": 10, "metrics": {"eval/accuracy": 0.99}})
            bodies.append({"step": 9, "metrics": {"eval/late": 0.5}})
        metrics = {"reward": step / 3, "loss": None if step % 3 == 0 else -float(step), "step_time": 0.5}
        bodies.append(
            {
                "step": step,
                "metrics": metrics | ({"rare": 1.0} if step in (2, 7) else {}),
                "groups": [group(index, prompt_id=f"p{step % 2}") for index in range(step % 3)],
                "trace": TRACE if step % 3 else None,
                "logs": [p.LogLine(message=f"step {step}")] if step % 5 == 0 else [],
                "seconds": 1.5 * step,
            }
        )
    bodies.append({"logs": [p.LogLine(message="the end", level="warning")]})
    return [p.Report.model_validate({"attempt": attempt, "seq": seq, **body}) for seq, body in enumerate(bodies)]


NAMED_BY_ITSELF = {"id", "run_id", "group_id", "created_at", "path", "heartbeat_at", "started_at", "claim_key"}
OF_RUNS = {"summary", "sparkline", "step", "total_steps", "eta_seconds", "status"}


def stored(backend: Backend, run_id: int) -> dict[str, list[str]]:
    """All that the database has of a run, but for the numbers that each has for itself."""
    found: dict[str, list[str]] = {}
    with backend.services.database.read() as tx:
        for table in metadata.sorted_tables:
            key = table.c.id if table is tables.run else table.c.get("run_id")
            if key is None or table is tables.attempt:
                continue
            names = OF_RUNS if table is tables.run else {*table.c.keys()} - NAMED_BY_ITSELF
            columns = [one for one in table.c if one.name in names]
            # a mean of means is rounded more often than the mean of all
            found[table.name] = sorted(
                str([round(one, 9) if isinstance(one, float) else one for one in row])
                for row in tx.execute(select(*columns).where(key == run_id))
            )
    return found


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("at_once", [2, 5, 64])
def test_reports_that_come_together_are_stored_as_those_that_come_one_by_one(
    backend: Backend, recorded: bool, at_once: int
) -> None:
    made = []
    for size in (1, at_once):
        run_id = recording(backend, key=f"{size:016}").run_id if recorded else began(backend.client).run_id
        reports = many_reports(1)
        for first in range(0, len(reports), size):
            together = p.Reports(attempt=1, reports=reports[first : first + size])
            if size == 1:
                backend.client.report(run_id, *together.reports)
            else:
                assert [backend.client.reports(run_id, together).duplicate for _ in range(2)] == [False, True]
        made.append((stored(backend, run_id), backend.client.metrics(run_id).series, backend.client.steps(run_id)))
        [traced] = [one.id for one in backend.client.all_groups(run_id) if (one.step, one.index) == (11, 0)]
        assert backend.client.tokens(backend.client.group(traced).completions[1].id).token_ids == [5, 6]
    assert made[0] == made[1]
    assert len(made[0][0]["metric_stretch"]) > 20


def test_of_reports_that_come_together_those_that_came_before_are_not_stored_again(backend: Backend) -> None:
    actor = began(backend.client)
    reports = many_reports(1)
    backend.client.reports(actor.run_id, p.Reports(attempt=1, reports=reports[:3]))
    both = p.Reports(attempt=1, reports=[*reports[1:5], *reports[4:6]])
    assert not backend.client.reports(actor.run_id, both).duplicate
    assert len(stored(backend, actor.run_id)["report"]) == 6
    actor.finish()
    assert backend.client.reports(actor.run_id, both).duplicate


def test_of_reports_that_come_together_none_is_stored_if_one_is_refused(backend: Backend) -> None:
    actor = began(backend.client)
    before = stored(backend, actor.run_id)
    first, second = (p.Report(attempt=1, seq=seq, step=seq, trace=TRACE, groups=[group()]) for seq in (0, 1))
    broken = second.model_copy(update={"trace": TRACE.model_copy(update={"sha256": "0" * 64})})
    probe = first.model_copy(update={"groups": [group().model_copy(update={"state": "probe"})]})
    changes: list[tuple[str, list[p.Report]]] = [
        ("report_conflict", [probe, second.model_copy(update={"step": 0})]),  # a group at the place of another
        ("conflict", [probe, probe.model_copy(update={"seq": 1})]),
        ("report_conflict", [first, second.model_copy(update={"step": 0})]),
        ("report_conflict", [first, first.model_copy(update={"seconds": 3.0})]),
        ("invalid", [first, second.model_copy(update={"step": 10_000_000})]),
        ("invalid", [first, broken]),
        ("invalid", [first, part(1, 1, 1)]),
        ("invalid", [first, p.Report(attempt=1, seq=1, step=0, metrics={"loss": 1.0}, late=True)]),
    ]
    for code, reports in changes:
        assert refused(actor, *reports) == code, reports
        assert stored(backend, actor.run_id) == before
        assert not list(backend.home.rglob("*.parquet*"))


LINES = [p.Report(attempt=1, seq=seq, logs=[p.LogLine(message="x")]).model_dump_json() for seq in range(65)]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([""], ""),
        (["", ""], ""),
        (["{}", "{}"], ""),
        (['{"attempt": 1, "seq": 0}', '{"attempt": 2, "seq": 1}'], ""),
        (["[]"], ""),
        (LINES, "The body has more than 64 lines"),
        ([*LINES[:2], "{", LINES[3]], "Line 3: The body is not valid JSON"),
        ([*LINES[:2], '{"attempt": 1, "seq": -1}', LINES[3]], "line 3: seq: must be at least 0"),
        ([*LINES[:2], "", LINES[3]], "Line 3: "),
    ],
)
def test_lines_that_are_no_reports_of_one_attempt_or_too_many_are_refused_and_the_wrong_one_is_named(
    backend: Backend, lines: list[str], said: str
) -> None:
    actor = began(backend.client)
    answer = send(backend, actor, "\n".join(lines), to="reports")
    assert answer.status_code in (400, 422)
    assert answer.json()["error"]["code"] in ("bad_request", "invalid")
    assert answer.json()["error"]["message"].startswith(said)
    assert send(backend, actor, "\n".join(LINES[1:]), to="reports").status_code == 200


def test_what_reports_tell_of_stands_in_their_order(backend: Backend) -> None:
    actor = began(backend.client)
    backend.client.reports(actor.run_id, p.Reports(attempt=1, reports=many_reports(1)))
    with backend.services.database.read() as tx:
        told = [
            (one["kind"], one["payload"].get("step", one["payload"].get("message")))
            for one in events.after(tx, actor.run_id, 0)
        ]
    steps = [("step", step) for step in range(12)]
    expected = [one for step in steps for one in ([step, ("log", f"step {step[1]}")] if step[1] % 5 == 0 else [step])]
    assert [one for one in told if one[0] != "status"] == [*expected, ("log", "the end")]


def test_steps_that_come_in_another_order_are_counted_in_theirs(backend: Backend) -> None:
    """A program of somebody else's may send them so."""
    run_id = recording(backend).run_id
    reports = [
        p.Report(attempt=1, seq=seq, step=step, metrics={"loss": float(step)}) for seq, step in enumerate((3, 1, 2))
    ]
    backend.client.reports(run_id, p.Reports(attempt=1, reports=reports))
    with backend.services.database.read() as tx:
        kept = tx.execute(select(tables.metric_stretch).where(tables.metric_stretch.c.width == 1024)).mappings().one()
    assert (kept["first_step"], kept["last_step"], kept["low_step"], kept["high_step"]) == (1, 3, 1, 3)


def test_a_trace_file_that_another_request_took_away_is_sent_again(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two requests brought the same reports, and the longer one was refused while the other was about to be stored."""
    actor = began(backend.client)
    store = reports_module.store

    def taken_away(*args: Any) -> bool:
        [file] = backend.home.rglob("*.parquet")
        file.unlink()
        return store(*args)

    with monkeypatch.context() as patched:
        patched.setattr(reports_module, "store", taken_away)
        with pytest.raises(ApiError) as caught:
            actor.report(0, trace=TRACE)
    assert may_pass(caught.value)
    assert not actor.report(0, trace=TRACE).duplicate
    assert len(list(backend.home.rglob("*.parquet"))) == 1
