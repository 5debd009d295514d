"""Series, groups and preference pairs as charts and lists ask for them."""

import json
from typing import Any

import pytest
from acting import GRPO, Actor, api_error, began, group
from serving import Backend

from backend.contract import protocol as p
from backend.contract.client import ApiError
from backend.contract.pairs import RECORDED, PairReport
from backend.contract.preference import DpoConfig
from backend.telemetry import metrics


@pytest.fixture(scope="module")
def run_id(shared_backend: Backend) -> int:
    """Twelve steps of three groups."""
    shared_backend.client.create_run(GRPO, name="read only")
    actor = Actor(shared_backend.client).begin()
    for step in range(12):
        rewards = [(1.0, 0.0), (1.0, 1.0), (None, step / 12)]
        groups = [group(index, prompt_id=f"item {index}", rewards=rewards[index]) for index in range(3)]
        actor.report(step, metrics={"reward": step / 2, "kl": None if step == 3 else 0.1}, groups=groups)
    actor.finish()
    return actor.run_id


def test_series_and_steps_are_cut_and_runs_compared_as_was_asked_for(shared_backend: Backend, run_id: int) -> None:
    read = shared_backend.client.metrics
    assert set(read(run_id).series) == {"reward", "kl"}
    assert set(read(run_id, names=["kl", "other"]).series) == {"kl"}
    assert read(run_id, names=["kl"], after_step=9).series["kl"].step == [10, 11]
    assert read(run_id, names=["kl"], from_step=2, to_step=3).series["kl"].value == [0.1, None]
    assert read(run_id, names=["reward"], max_points=4).series["reward"].step == [3, 7, 11]
    with pytest.raises(ApiError, match="must be a power of two"):
        read(run_id, width=6)
    states = {"live": 1, "zero_variance": 2}
    after = [(one.step, one.states) for one in shared_backend.client.steps(run_id, after_step=9)]
    assert after == [(10, states), (11, states)]
    other = shared_backend.client.create_run(GRPO).id
    compared = shared_backend.client.compare_metrics(runs=[other, run_id], names=["reward"]).items
    assert [(one.run_id, len(one.series)) for one in compared] == [(other, 0), (run_id, 1)]


@pytest.mark.parametrize("query", [{}, {"max_points": 1000}, {"width": 1}, {"width": 2}])
def test_an_answer_of_too_many_values_is_thinned_and_says_so(
    shared_backend: Backend, run_id: int, monkeypatch: pytest.MonkeyPatch, query: dict[str, int]
) -> None:
    monkeypatch.setattr(metrics, "VALUES", 8)  # of 12 steps × 2 series
    series = shared_backend.client.metrics(run_id, **query).series
    assert sum(len(one.step) for one in series.values()) <= 8
    for one in series.values():
        assert one.stretches is not None
        assert sum(one.stretches.finite) + sum(one.stretches.missing) == 12


def test_groups_are_filtered(shared_backend: Backend, run_id: int) -> None:
    def found(**query: object) -> list[tuple[int, int]]:
        return [(one.step, one.index) for one in shared_backend.client.groups(run_id, **query).items]  # type: ignore[arg-type]

    assert found(step=3) == [(3, 0), (3, 1), (3, 2)]
    assert found(prompt_id="item 1", limit=3) == [(0, 1), (1, 1), (2, 1)]
    assert found(state="live", step=2) == [(2, 0)]
    assert found(search="PROMPT ITEM 2", step=1) == [(1, 2)]
    assert found(search="text 1", step=1) == [(1, 0), (1, 1), (1, 2)]
    assert found(search="%") == found(search="_") == []


def test_groups_are_sorted_and_what_has_no_value_comes_last(shared_backend: Backend, run_id: int) -> None:
    def means(sort: str) -> list[float | None]:
        return [one.reward_mean for one in shared_backend.client.groups(run_id, step=4, sort=sort).items]

    assert means("reward_mean") == [pytest.approx(4 / 12), 0.5, 1.0]
    assert means("-reward_mean") == [1.0, 0.5, pytest.approx(4 / 12)]
    steps = [one.step for one in shared_backend.client.groups(run_id, sort="-step", limit=4).items]
    assert steps == [11, 11, 11, 10]
    with api_error(422):
        shared_backend.client.groups(run_id, sort="text; drop table run")


def test_paging_through_groups_shows_each_once(shared_backend: Backend, run_id: int) -> None:
    seen: list[int] = []
    cursor = None
    while True:
        page = shared_backend.client.groups(run_id, sort="-reward_std", limit=7, cursor=cursor)
        seen.extend(one.id for one in page.items)
        cursor = page.next_cursor
        if cursor is None:
            break
    assert len(seen) == len(set(seen)) == 36


def test_an_export_holds_the_run_its_metrics_and_every_group_with_its_completions(
    shared_backend: Backend, run_id: int
) -> None:
    answer = shared_backend.http.get(f"/api/v1/runs/{run_id}/export")
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [line["kind"] for line in lines] == ["run", "metrics"] + ["group"] * 36
    assert lines[0]["run"]["name"] == "read only"
    assert lines[1]["metrics"]["series"]["kl"]["value"][3] is None
    assert [one["text"] for one in lines[2]["group"]["completions"]] == ["text 0", "text 1"]


def test_logs_are_read_on_from_the_last_line_seen(shared_backend: Backend) -> None:
    run = shared_backend.client.create_run(GRPO, priority=100)
    actor = Actor(shared_backend.client, "logger").begin()
    assert actor.run_id == run.id
    for number in range(5):
        actor.report(logs=[{"message": f"line {number}"}])
    page = shared_backend.client.logs(run.id, limit=2)
    rest = shared_backend.client.logs(run.id, after_id=page.items[-1].id)
    assert [line.message for line in [*page.items, *rest.items]] == [f"line {number}" for number in range(5)]
    assert (page.next_cursor, rest.next_cursor) == (str(page.items[-1].id), None)
    actor.finish()


# ---- pairs

DPO = DpoConfig.model_validate({"budget": {"steps": 6}}).model_dump(mode="json")


def pair(index: int, chosen: str = "right", margin: float | None = 0.5) -> PairReport:
    return PairReport(
        index=index, prompt_id=f"p{index}", prompt="1 + 1", chosen=chosen, rejected="wrong", margin=margin
    )


def report(actor: Actor, seq: int, step: int, *pairs: PairReport) -> None:
    sent = p.Report(attempt=actor.attempt, seq=seq, step=step, metrics={"loss": 0.5}, pairs=list(pairs))
    actor.client.report(actor.run_id, sent)


def test_pairs_are_listed_from_the_newest_step_page_by_page_without_what_a_resume_took_back(backend: Backend) -> None:
    first = began(backend.client, DPO)
    for step in range(3):
        report(first, step, step, pair(0, f"first {step}"), pair(1, margin=None))
    backend.clock.now += 31
    second = Actor(backend.client, "second").begin(2, "dpo")
    report(second, 0, 2, pair(0, "second 2", margin=-1.5))
    found = backend.client.pairs(first.run_id).items
    assert [(one.step, one.index, one.chosen, one.margin) for one in found] == [
        (2, 0, "second 2", -1.5),
        (1, 0, "first 1", 0.5),
        (1, 1, "right", None),
        (0, 0, "first 0", 0.5),
        (0, 1, "right", None),
    ]
    assert [one.step for one in backend.client.pairs(first.run_id, step=1).items] == [1, 1]
    page = backend.client.pairs(first.run_id, limit=3)
    rest = backend.client.pairs(first.run_id, limit=3, cursor=page.next_cursor)
    assert [*page.items, *rest.items] == found
    assert rest.next_cursor is None


def test_more_pairs_of_a_step_than_are_kept_are_refused_and_those_that_are_go_with_their_run(backend: Backend) -> None:
    actor = began(backend.client, DPO)
    message: dict[str, Any] = {"attempt": 1, "seq": 0, "step": 0, "metrics": {"loss": 1.0}, "groups": [], "logs": []}
    many = p.Report.model_construct(**message, pairs=[pair(index) for index in range(RECORDED + 1)])
    with pytest.raises(ApiError, match="pairs"):
        actor.client.report(actor.run_id, many)
    report(actor, 0, 0, pair(0))
    actor.finish()
    backend.client.delete_run(actor.run_id)
    with pytest.raises(ApiError, match=f"no run {actor.run_id}"):
        backend.client.pairs(actor.run_id)
