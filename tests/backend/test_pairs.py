"""The preference pairs of a run's steps, as they are stored and listed."""

from typing import Any

import pytest
from acting import Actor
from serving import Backend

from backend.contract import protocol as p
from backend.contract.client import ApiError
from backend.contract.pairs import RECORDED, PairReport
from backend.contract.preference import DpoConfig

DPO = DpoConfig.model_validate({"budget": {"steps": 6}}).model_dump(mode="json")


def pair(index: int, chosen: str = "right", margin: float | None = 0.5) -> PairReport:
    return PairReport(
        index=index, prompt_id=f"p{index}", prompt="1 + 1", chosen=chosen, rejected="wrong", margin=margin
    )


def report(actor: Actor, seq: int, step: int, *pairs: PairReport) -> None:
    sent = p.Report(attempt=actor.attempt, seq=seq, step=step, metrics={"loss": 0.5}, pairs=list(pairs))
    actor.client.report(actor.run_id, sent)


def test_pairs_are_listed_from_the_newest_step_page_by_page_without_what_a_resume_took_back(backend: Backend) -> None:
    run_id = backend.client.create_run(DPO).id
    first = Actor(backend.client).begin(0, "dpo")
    for step in range(3):
        report(first, step, step, pair(0, f"first {step}"), pair(1, margin=None))
    backend.clock.now += 31
    second = Actor(backend.client, "second").begin(2, "dpo")
    report(second, 0, 2, pair(0, "second 2", margin=-1.5))
    found = backend.client.pairs(run_id).items
    assert [(one.step, one.index, one.chosen, one.margin) for one in found] == [
        (2, 0, "second 2", -1.5),
        (1, 0, "first 1", 0.5),
        (1, 1, "right", None),
        (0, 0, "first 0", 0.5),
        (0, 1, "right", None),
    ]
    assert [one.step for one in backend.client.pairs(run_id, step=1).items] == [1, 1]
    page = backend.client.pairs(run_id, limit=3)
    rest = backend.client.pairs(run_id, limit=3, cursor=page.next_cursor)
    assert [*page.items, *rest.items] == found
    assert rest.next_cursor is None


def test_more_pairs_of_a_step_than_are_kept_are_refused_and_those_that_are_go_with_their_run(backend: Backend) -> None:
    run_id = backend.client.create_run(DPO).id
    actor = Actor(backend.client).begin(0, "dpo")
    message: dict[str, Any] = {"attempt": 1, "seq": 0, "step": 0, "metrics": {"loss": 1.0}, "groups": [], "logs": []}
    many = p.Report.model_construct(**message, pairs=[pair(index) for index in range(RECORDED + 1)])
    with pytest.raises(ApiError, match="pairs"):
        actor.client.report(run_id, many)
    report(actor, 0, 0, pair(0))
    actor.finish()
    backend.client.delete_run(run_id)
    with pytest.raises(ApiError, match=f"no run {run_id}"):
        backend.client.pairs(run_id)
