"""Which checkpoints of a run stay: never fewer than somebody needs, and none is offered that goes."""

import hashlib
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from acting import GRPO, SAMPLE, Actor
from serving import Backend

from backend.contract import protocol as p
from backend.contract.base import Json
from backend.contract.client import ApiError
from backend.contract.grpo import GrpoConfig
from backend.preflight.facts import Facts
from backend.preflight.hints import best_checkpoint

GIB = 2**30


def keeping(steps: int = 1000, **keep: Json) -> dict[str, Any]:
    budget: Any = GRPO["budget"]
    return {**GRPO, "budget": {**budget, "steps": steps, "keep": keep}}


class Saving(Actor):
    """A worker that saves as a real one does."""

    def keep(self, step: int, size: int = 1, evaluated: float | None = None) -> p.Accepted:
        """Register a checkpoint, with what was measured at it."""
        path = f"run-{self.run_id}/step-{step}-attempt-{self.attempt}"
        digest = hashlib.sha256(path.encode()).hexdigest()
        sent = p.CheckpointReport(
            attempt=self.attempt, step=step, store=self.info.store, path=path, sha256=digest, size_bytes=size
        )
        accepted = self.client.checkpoint(self.run_id, sent)
        if evaluated is not None:
            self.report(step, groups=[], metrics={"eval/pass@1": evaluated, "eval/reward": -evaluated})
        return accepted


def begun(backend: Backend, config: dict[str, Any], name: str = "one") -> Saving:
    run_id = backend.client.create_run(config).id
    actor = Saving(backend.client, name)
    actor.begin(0, config["kind"])
    assert actor.run_id == run_id
    return actor


def steps(backend: Backend, run_id: int) -> list[int]:
    return [one.step for one in backend.client.checkpoints(run_id)]


def said(backend: Backend, run_id: int) -> list[tuple[str, str]]:
    return [(line.level, line.message) for line in backend.client.logs(run_id).items]


def test_a_run_that_says_nothing_of_it_keeps_every_checkpoint(backend: Backend) -> None:
    budget: Any = {name: value for name, value in dict(GRPO["budget"]).items() if name != "keep"}  # type: ignore[call-overload,arg-type]
    actor = begun(backend, {**GRPO, "budget": budget})
    answers = [actor.keep(step, size=50 * GIB) for step in (20, 40, 60)]
    assert steps(backend, actor.run_id) == [20, 40, 60]
    assert [answer.kept for answer in answers] == [None] * 3, "its worker is asked to remove nothing"


@pytest.mark.parametrize(
    ("keep", "stay"),
    [
        ({"last": 1, "best": False}, [120]),
        ({"last": 2, "best": False}, [100, 120]),
        ({"last": 1}, [60, 120]),
        ({"last": 1, "best": False, "every": 40}, [40, 80, 120]),
        ({"last": 2, "every": 40}, [40, 60, 80, 100, 120]),
        ({"at_most_gib": 3.0}, [60, 100, 120]),
        ({"at_most_gib": 3.0, "best": False}, [80, 100, 120]),
        ({"at_most_gib": 0.5}, [120]),
        ({"last": 4, "at_most_gib": 2.0}, [60, 120]),
    ],
)
def test_the_newest_the_best_and_each_kth_stay_and_nothing_else(
    backend: Backend, keep: dict[str, Json], stay: Sequence[int]
) -> None:
    actor = begun(backend, keeping(**keep))
    for step in (20, 40, 60, 80, 100, 120):
        answer = actor.keep(step, size=GIB, evaluated=0.9 if step == 60 else 0.2)
    assert steps(backend, actor.run_id) == stay
    assert answer.kept == sorted(f"run-{actor.run_id}/step-{step}-attempt-1" for step in stay)


def test_the_best_is_judged_by_the_reward_where_no_answer_is_right_or_wrong(backend: Backend) -> None:
    actor = begun(backend, keeping(last=1))
    for step, reward in ((20, 0.1), (40, 0.7), (60, 0.3), (80, 0.5)):
        actor.keep(step)
        actor.report(step, groups=[], metrics={"eval/reward": reward})
    assert steps(backend, actor.run_id) == [40, 80]


def test_what_was_removed_and_why_the_rest_stays_is_in_the_runs_log(backend: Backend) -> None:
    actor = begun(backend, keeping(last=1, every=80))
    for step, rate in ((20, 0.5), (40, 0.75), (60, 0.1)):
        actor.keep(step, size=GIB // 2, evaluated=rate)
    rules = "the newest 1, those at multiples of 80 steps, the best"
    assert said(backend, actor.run_id) == [
        ("info", f"removed: checkpoints of step 20; kept (1.00 GiB): {rules} (step 40, eval/pass@1 0.750)")
    ]


LAST_ALONE: dict[str, Json] = {"last": 1, "best": False}


def other_run(backend: Backend, of: int, need: str) -> int:
    """A run that needs the checkpoint at step 20 of another one."""
    source = f"run:{of}@20"
    scored: Json = {"name": "taste", "kind": "reward_model", "source": source}
    needs: dict[str, Json] = (
        {"rewards": {"functions": [scored]}} if need == "rewards" else {"model": {"source": source}}
    )
    return backend.client.create_run({**(SAMPLE if need == "sample" else GRPO), **needs}).id


@pytest.mark.parametrize(
    ("need", "ended"), [("model", "waits"), ("model", "stopped"), ("rewards", "waits"), ("sample", "waits")]
)
def test_a_checkpoint_that_another_run_may_need_is_not_removed(backend: Backend, need: str, ended: str) -> None:
    config = keeping(**LAST_ALONE)
    if need == "rewards":
        config = {"kind": "reward_model", "budget": {"steps": 1000, "keep": LAST_ALONE}}
    actor = begun(backend, config)
    actor.keep(20)
    other = other_run(backend, actor.run_id, need)
    if ended == "stopped":
        backend.client.command(other, "stop")  # somebody may retry it
    actor.keep(40)
    actor.keep(60)
    assert steps(backend, actor.run_id) == [20, 60]
    if ended == "waits":
        backend.client.command(other, "stop")
    if need != "sample":
        backend.client.delete_run(other)
    actor.keep(80)
    assert steps(backend, actor.run_id) == [80], "nobody names it any more"


def test_a_bound_that_cannot_be_kept_is_said_and_the_newest_stays(backend: Backend) -> None:
    actor = begun(backend, keeping(at_most_gib=1.5))
    actor.keep(20, size=GIB)
    backend.client.create_run({**GRPO, "model": {"source": f"run:{actor.run_id}@20"}})
    actor.keep(40, size=GIB)
    assert steps(backend, actor.run_id) == [20, 40]
    [(level, message)] = said(backend, actor.run_id)
    assert level == "warning"
    assert message.startswith("checkpoints take 2.00 GiB, more than budget.keep.at_most_gib (1.5): steps 20, 40 stay")


def test_a_removed_checkpoint_is_neither_offered_nor_named_nor_resumed(backend: Backend) -> None:
    actor = begun(backend, keeping(last=2, best=False))
    for step in (20, 40, 60):
        actor.keep(step)
    with pytest.raises(ApiError, match="has no checkpoint at step 20; choose one it has"):
        backend.client.create_run({**GRPO, "model": {"source": f"run:{actor.run_id}@20"}})
    actor.finish("released")
    claim = Saving(backend.client, "two").claimed()
    assert claim.resume is not None
    assert [claim.resume.step, *(one.step for one in claim.earlier)] == [60, 40]
    assert claim.kept == [f"run-{actor.run_id}/step-{step}-attempt-1" for step in (40, 60)]


def test_what_an_attempt_left_beyond_the_next_ones_beginning_goes_and_no_message_brings_it_back(
    backend: Backend,
) -> None:
    actor = begun(backend, keeping(last=2, best=False))
    for step in (20, 40):
        actor.keep(step)
    actor.finish("released")
    again = Saving(backend.client, "two")
    again.claimed()
    again.start(20)  # the one at 40 was damaged
    answer = again.keep(40)
    assert answer.kept == [f"run-{actor.run_id}/step-20-attempt-1", f"run-{actor.run_id}/step-40-attempt-2"]
    twice = again.keep(40)
    assert twice.duplicate
    assert twice.kept == answer.kept
    assert steps(backend, actor.run_id) == [20, 40]


@pytest.mark.thorough
def test_a_run_that_is_created_while_its_checkpoint_goes_has_it_or_is_refused(backend: Backend) -> None:
    actor = begun(backend, keeping(steps=1_000_000, last=1, best=False))
    actor.keep(1)
    over = threading.Event()

    def name_the_newest() -> set[int]:
        named, last = set[int](), False
        while not last:
            last = over.is_set()  # its checkpoint stays; a slow machine may lose the race for each one before
            newest = steps(backend, actor.run_id)[-1]
            try:
                backend.client.create_run({**GRPO, "model": {"source": f"run:{actor.run_id}@{newest}"}})
                named.add(newest)
            except ApiError as refused:
                assert "has no checkpoint at step" in refused.message  # noqa: PT017 — of a thread
        return named

    with ThreadPoolExecutor(3) as pool:
        naming = [pool.submit(name_the_newest) for _ in range(3)]
        for step in range(2, 60):
            actor.keep(step)
        over.set()
        named = set[int]().union(*(one.result() for one in naming))
    assert named
    assert named <= set(steps(backend, actor.run_id))


@pytest.mark.parametrize(
    ("saved", "evaluated", "fix"), [(20, 25, {"budget.checkpoint_every": 25}), (20, 0, None), (50, 25, ()), (0, 25, ())]
)
def test_the_form_says_where_the_best_can_seldom_be_known(saved: int, evaluated: int, fix: object) -> None:
    config = GrpoConfig.model_validate(
        {"budget": {"checkpoint_every": saved, "eval_every": evaluated, "keep": {"last": 2}}}
    )
    messages = list(best_checkpoint(config, Facts()))
    assert [message.fix for message in messages] == ([] if fix == () else [fix])
