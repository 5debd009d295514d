"""A resumed run shows one history: nothing of what an earlier attempt did beyond the place where the next began."""

from collections.abc import Iterable
from statistics import fmean
from typing import Any

import pytest
from acting import GRPO, Actor, began, group
from serving import Backend

from backend.contract import protocol as p
from backend.contract.client import ApiError
from backend.runs import curve
from backend.telemetry.summary import recomputed


def resumed_at_2(backend: Backend) -> Actor:
    """Attempt 1 did steps 0 to 3 and was lost; attempt 2 begins at checkpoint 2 and did steps 2 and 3."""
    first = began(backend.client, name="first")
    first.report(0, groups=[], metrics={"eval/pass@1": 0.1})
    for step in range(4):
        first.report(step, metrics={"reward": 1.0 + step, "only/first": 1.0}, groups=[group(prompt_id=f"first {step}")])
        if step == 1:
            first.report(2, groups=[], metrics={"eval/pass@1": 0.2})
            first.save(2)
    first.report(4, groups=[], metrics={"eval/pass@1": 0.4})
    first.save(4)
    backend.clock.now += 31
    second = Actor(backend.client, "second").begin(from_step=2)
    for step in range(2, 4):
        second.report(step, metrics={"reward": 20.0 + step}, groups=[group(prompt_id=f"second {step}")])
    return second


def test_every_view_shows_each_step_of_the_attempt_that_is_live_there(backend: Backend) -> None:
    second = resumed_at_2(backend)
    client, run_id = backend.client, second.run_id
    series = client.metrics(run_id).series
    assert (series["reward"].step, series["reward"].value) == ([0, 1, 2, 3], [1.0, 2.0, 22.0, 23.0])
    assert series["only/first"].step == [0, 1]
    live = ["first 0", "first 1", "second 2", "second 3"]
    assert [one.prompt_id for one in client.groups(run_id).items] == live
    assert [(one.step, sum(one.states.values())) for one in client.steps(run_id)] == [(step, 1) for step in range(4)]
    run = client.run(run_id)
    assert run.summary == {"reward": 23.0, "only/first": 1.0, "eval/pass@1": 0.2, "eval/pass@1:first": 0.1}
    assert run.reward_sparkline == [1.0, 2.0, 22.0, 23.0]
    assert (run.recent_reward, run.progress.step) == (12.0, 4)
    evaluations = client.metrics(run_id, names=["eval/pass@1"]).series["eval/pass@1"]
    assert (evaluations.step, evaluations.value) == ([0, 2], [0.1, 0.2]), "that of the weights it began with stays"
    second.report(2, groups=[], metrics={"eval/pass@1": 0.25})  # until it is made again
    assert client.metrics(run_id).series["eval/pass@1"].value == [0.1, 0.25]


def test_a_bookmarked_group_is_still_listed_as_superseded_when_a_resume_took_its_step_back(backend: Backend) -> None:
    run_id = resumed_at_2(backend).run_id
    prompts = {backend.client.group(number).prompt_id: number for number in range(1, 7)}
    for kept in ("first 0", "first 3", "second 3"):
        backend.client.people.bookmark(prompts[kept], "look again")
    listed = backend.client.groups(run_id, bookmarked=True).items
    superseded = [("first 0", False), ("first 3", True), ("second 3", False)]
    assert [(one.prompt_id, one.superseded) for one in listed] == superseded
    assert [one.prompt_id for one in backend.client.groups(run_id, step=3).items] == ["second 3"]
    assert [one.prompt_id for one in backend.client.groups(run_id, bookmarked=False).items] == ["first 1", "second 2"]
    assert not backend.client.groups_of_prompt(prompt_id="first 3", runs=[run_id]).items


def test_checkpoints_beyond_the_new_beginning_are_no_longer_offered(backend: Backend) -> None:
    second = resumed_at_2(backend)
    assert [(one.attempt, one.step) for one in backend.client.checkpoints(second.run_id)] == [(1, 2)]
    second.save(4)
    second.finish("released")
    claim = Actor(backend.client).claimed()
    assert claim.resume is not None
    assert claim.resume.step == 4
    assert [(earlier.step, earlier.path) for earlier in claim.earlier] == [(2, f"run-{second.run_id}/step-2")]
    assert [(one.attempt, one.step) for one in backend.client.checkpoints(second.run_id)] == [(1, 2), (2, 4)]


def test_the_reward_of_a_run_is_the_mean_of_its_last_ten_steps(backend: Backend) -> None:
    run_id = backend.client.create_run(GRPO).id
    assert backend.client.run(run_id).recent_reward is None
    actor = Actor(backend.client).begin()
    for step in range(15):
        actor.report(step, groups=[], metrics={"reward": 100.0 if step < 5 else None if step == 9 else float(step)})
    expected = fmean(step for step in range(5, 15) if step != 9)
    assert backend.client.run(run_id).recent_reward == pytest.approx(expected)
    assert backend.client.runs().items[0].recent_reward == pytest.approx(expected)


@pytest.mark.slow
def test_what_lists_show_is_kept_as_it_would_be_counted_anew(backend: Backend) -> None:
    second = resumed_at_2(backend)
    for step in range(4, 95):
        second.report(step, metrics={"reward": None if step % 7 == 0 else step / 3}, groups=[group()])
    run = backend.client.run(second.run_id)
    with backend.services.database.read() as tx:
        anew = recomputed(tx, second.run_id)
    assert run.summary == anew["summary"]
    assert run.reward_sparkline == pytest.approx(curve.points(anew["sparkline"]))
    assert len(run.reward_sparkline) <= 40


@pytest.mark.parametrize(("at", "attempts", "saved"), [(1, [1, 3], []), (4, [1, 1, 2, 2, 3], [2])])
def test_a_third_attempt_cuts_both_earlier_ones_where_it_begins_and_brings_nothing_back(
    backend: Backend, at: int, attempts: list[int], saved: list[int]
) -> None:
    resumed_at_2(backend).finish("released")
    third = Actor(backend.client, "third").begin(from_step=at)
    third.report(at, metrics={"reward": 300.0})
    series = backend.client.metrics(third.run_id).series["reward"]
    assert (series.step, series.value) == ([*range(at + 1)], [*[1.0, 2.0, 22.0, 23.0][:at], 300.0])
    assert [one.attempt for one in backend.client.groups(third.run_id).items] == attempts
    assert [one.step for one in backend.client.checkpoints(third.run_id)] == saved


def test_an_attempt_that_never_said_where_it_begins_cuts_nothing(backend: Backend) -> None:
    second = resumed_at_2(backend)
    second.finish("released")
    third = Actor(backend.client, "third")
    third.claim()
    third.report(logs=[p.LogLine(message="loading the model")])
    assert backend.client.metrics(second.run_id).series["reward"].step == [0, 1, 2, 3]
    with pytest.raises(ApiError, match="send start first"):
        third.report(0)


def curve_of(values: Iterable[tuple[int, float | None]]) -> list[float | None]:
    """The points of the curve after each (step, value) was added."""
    state = curve.empty()
    for step, value in values:
        state = curve.with_value(state, step, value)
    return curve.points(state)


def test_the_curve_keeps_the_mean_of_each_stretch_at_any_length() -> None:
    curve = curve_of((step, float(step)) for step in range(1000))
    assert len(curve) <= 40
    width = 1000 / len(curve)
    assert curve[0] == pytest.approx((width - 1) / 2, abs=width / 2)
    assert curve == sorted(curve)  # type: ignore[type-var]
    assert curve_of([(0, None), (2, 1.0)]) == [None, None, 1.0]


def test_the_curve_of_a_run_that_logs_every_third_step_has_no_gaps_but_those_of_values_that_were_not_finite() -> None:
    assert curve_of([(2, 1.0), (5, 2.5), (8, None), (11, 3.0)]) == pytest.approx(
        [None, None, 1.0, 1.5, 2.0, 2.5, None, None, None, None, None, 3.0]
    )
    assert None not in curve_of((step, float(step)) for step in range(9, 300, 10))[2:]


def test_an_evaluation_that_is_made_again_at_its_step_is_one_evaluation_and_the_first_is_told_apart(
    backend: Backend,
) -> None:
    run_id = backend.client.create_run(GRPO).id
    for value in (0.5, 0.6):
        actor = Actor(backend.client).begin()
        actor.report(0, groups=[], metrics={"eval/pass@1": value})
        assert backend.client.run(run_id).summary == {"eval/pass@1": value}
        actor.finish("released")
    actor = Actor(backend.client).begin()
    assert backend.client.run(run_id).summary == {"eval/pass@1": 0.6}
    actor.report(2, groups=[], metrics={"eval/pass@1": 0.7})
    assert backend.client.run(run_id).summary == {"eval/pass@1": 0.7, "eval/pass@1:first": 0.6}
    actor.finish("released")
    actor.begin(2)
    for step, value in ((2, 0.8), (4, 0.9)):
        actor.report(step, groups=[], metrics={"eval/pass@1": value})
        assert backend.client.run(run_id).summary == {"eval/pass@1": value, "eval/pass@1:first": 0.6}


def test_a_metric_whose_name_looks_like_an_evaluations_is_one_of_training(backend: Backend) -> None:
    first = began(backend.client)
    for step in range(8):
        first.report(step, groups=[], metrics={"Eval/x": 1.0, "loss": 1.0})
    first.finish("released")
    second = Actor(backend.client).begin(6)
    second.report(6, groups=[], metrics={"Eval/x": 2.0, "loss": 2.0})
    for asked in ({}, {"width": 4}):
        series = backend.client.metrics(first.run_id, **asked).series
        assert series["Eval/x"] == series["loss"]
        assert series["loss"].step[-1] == 6


def test_the_largest_rewards_have_a_curve_and_their_reports_are_taken(backend: Backend) -> None:
    actor = began(backend.client)
    for step in range(44):
        actor.report(step, groups=[], metrics={"reward": 0.7e308 if step % 2 else 1.7e308})
    run = backend.client.run(actor.run_id)
    assert run.reward_sparkline == pytest.approx([1.2e308] * 22)
    assert run.recent_reward == pytest.approx(1.2e308)


def test_the_curve_of_an_earlier_version_goes_on() -> None:
    stored: Any = {"stride": 1, "buckets": [[3.0, 2], [0.0, 0]]}
    assert curve.points(stored) == [1.5, None]
    assert curve.points(curve.with_value(stored, 1, 4.0)) == [1.5, 4.0]
    assert curve.points(curve.with_value(stored, 40, 4.0))[0] == 1.5
