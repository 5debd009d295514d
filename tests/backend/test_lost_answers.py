"""An answer that got lost on the wire: the same request again changes nothing, and another one in its place is refused."""

from collections.abc import Callable, Iterator

import pytest
from acting import GRPO, Actor, api_error, began, group
from lossy_wire import Wire
from serving import TOKEN, Backend
from sqlalchemy import select

from backend.contract import protocol as p
from backend.contract.client import Client, Unreachable
from backend.storage.tables import metadata

Send = Callable[[Actor], object]


def report(value: float, **fields: object) -> Send:
    values = {"seq": 0, "step": 0, "metrics": {"reward": value}, "groups": [group()]} | fields
    return lambda actor: actor.client.report(actor.run_id, p.Report.model_validate(values | {"attempt": actor.attempt}))


def two_reports(value: float) -> Send:
    def send(actor: Actor) -> object:
        actor.seq = 0
        return actor.report_two(0, metrics={"reward": value}, groups=[group()])

    return send


def evaluation(value: float) -> Send:
    return report(value, metrics={"eval/accuracy": value}, groups=[], logs=[{"message": "evaluated"}])


def submit(name: str) -> Send:
    return lambda actor: actor.client.create_run(GRPO, name=name, idempotency_key="key")


def sweep(name: str) -> Send:
    return lambda actor: actor.client.create_sweep(name, [{"config": GRPO}] * 3, idempotency_key="key")


# What is sent, the same with another body, and the code and the words with which that one is refused.
MESSAGES: dict[str, tuple[Send, Send, str, str]] = {
    "start": (lambda actor: actor.start(0), lambda actor: actor.start(2), "conflict", "already began at step 0"),
    "report": (report(1.0), report(2.0), "report_conflict", "another body"),
    "reports": (two_reports(1.0), two_reports(2.0), "report_conflict", "another body"),
    "evaluation": (evaluation(1.0), evaluation(2.0), "report_conflict", "another body"),
    "checkpoint": (lambda actor: actor.save(1), lambda actor: actor.save(1, "other"), "conflict", "another checkpoint at step 1"),
    "finish": (lambda actor: actor.finish(), lambda actor: actor.finish("stopped"), "lease_lost", "is finished"),
    "fail": (lambda actor: actor.fail(), lambda actor: actor.finish(), "lease_lost", "is failed"),
    "run": (submit("one"), submit("two"), "conflict", "with another body"),
    "sweep": (sweep("one"), sweep("two"), "conflict", "with another body"),
}  # fmt: skip


def rows(backend: Backend) -> dict[str, list[object]]:
    """Every row of every table, without what only says when the worker was last heard of."""
    with backend.services.database.read() as tx:
        return {
            table.name: sorted(
                map(str, tx.execute(select(*[c for c in table.c if c.name not in ("heard_at", "seen_at")])))
            )
            for table in metadata.sorted_tables
        }


@pytest.fixture
def wire(backend: Backend) -> Iterator[tuple[Wire, Actor]]:
    """A worker that holds a run, at the end of a wire."""
    with Wire(backend.url) as between, Client(between.url, TOKEN) as client:
        yield between, began(client)


def unanswered(between: Wire, send: Callable[[], object]) -> None:
    """The answer to what is sent gets lost."""
    between.loses = lambda _path: True
    with pytest.raises(Unreachable):
        send()
    between.loses = lambda _path: False


@pytest.mark.parametrize("name", MESSAGES)
def test_what_was_committed_and_not_answered_can_be_sent_again(
    backend: Backend, wire: tuple[Wire, Actor], name: str
) -> None:
    (between, actor), (send, otherwise, refused, words) = wire, MESSAGES[name]
    before = rows(backend)
    unanswered(between, lambda: send(actor))
    committed = rows(backend)
    assert (committed != before) is (name != "start")  # which the fixture had sent
    answers = [send(actor) for _ in range(2)]
    assert answers[0] == answers[1]
    assert getattr(answers[0], "duplicate", True) is True
    with api_error(409, refused, match=words):
        otherwise(actor)
    assert rows(backend) == committed


def test_a_claim_that_was_not_answered_gives_the_same_run_when_it_is_sent_again(
    backend: Backend, wire: tuple[Wire, Actor]
) -> None:
    between, actor = wire
    runs = [backend.client.create_run(GRPO).id for _ in range(2)]
    unanswered(between, actor.claim)
    committed = rows(backend)
    assert Actor(backend.client, "other").claim("sample") is None
    again = actor.claimed()
    assert (again.run_id, again.attempt) == (runs[0], 1)
    assert rows(backend).keys() == committed.keys()
    for name in ("run", "attempt", "run_event"):
        assert len(rows(backend)[name]) == len(committed[name]), "nothing was claimed a second time"
    actor.start()
    actor.beat()
    assert actor.claimed().run_id == runs[1], "once it was answered, the next claim is another"


def test_a_key_of_another_workers_claim_is_refused_and_gives_nothing_away(backend: Backend) -> None:
    backend.client.create_run(GRPO)
    key = "k" * 32
    sent = {"worker": Actor(backend.client, "one").info.model_dump(), "key": key, "protocol": p.PROTOCOL}
    assert backend.http.post("/api/v1/worker/claim", json=sent).json()["claim"]["attempt"] == 1
    answer = backend.http.post("/api/v1/worker/claim", json=sent | {"worker": sent["worker"] | {"name": "two"}})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")


def test_a_claim_whose_worker_died_before_the_answer_gives_its_run_to_nobody_until_its_lease_is_over(
    backend: Backend, wire: tuple[Wire, Actor]
) -> None:
    between, actor = wire
    run = backend.client.create_run(GRPO)
    unanswered(between, actor.claim)
    heir = Actor(backend.client, "heir")
    assert heir.claim() is None
    backend.clock.now += 31
    claims = {claim.run_id: claim.attempt for claim in iter(heir.claim, None)}
    assert claims[run.id] == 2
    assert actor.claim() is None, "the key of a claim that was lost to another opens nothing"
