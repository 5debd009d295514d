"""Scoring beside sampling: what is whole is scored while the rest is drawn, with the same scores and the same errors."""

import threading

import numpy as np
import psutil
import pytest
from judge_service import Service, says
from processes import wait_until
from scorers import acting, endpoint, samples

from backend.contract.reward import Judge, Rewards
from worker.rewards.resources import RewardResources
from worker.rewards.scoring import RewardContractError, RewardErrors, RewardScorer, Scoring

# Each starts a process.
pytestmark = pytest.mark.slow


def failed(scoring: Scoring, kind: type[Exception]) -> bool:
    try:
        scoring.check()
    except kind:
        return True
    return False


def test_scores_are_in_the_order_of_the_batch_whatever_came_first() -> None:
    texts = ["one", "float32", "nan", "bool", "raise", "one"]
    with acting() as scorer:
        together = scorer.score([samples(*texts)])
        with scorer.begin(6) as scoring:
            for first in (4, 0, 2):
                scoring.add(first, samples(*texts[first : first + 2]))
            apart = scoring.finish()
    assert apart.components == together.components
    np.testing.assert_array_equal(apart.total, together.total)


def test_a_broken_contract_is_known_while_others_are_still_drawn() -> None:
    with acting() as scorer, scorer.begin(4) as scoring:
        scoring.add(0, samples("text"))
        wait_until(lambda: failed(scoring, RewardContractError), "it is known")
        with pytest.raises(RewardContractError):
            scoring.add(1, samples("one"))


def test_too_many_unscored_are_known_as_soon_as_it_is_sure_and_counted_over_the_step() -> None:
    with acting(max_unscored=0.2) as scorer, scorer.begin(10) as scoring:
        scoring.add(8, samples("nan", "raise"))
        scoring.add(0, samples("one", "one"))
        scoring.add(4, samples("none", "one"))
        wait_until(lambda: failed(scoring, RewardErrors), "it is sure")
        with pytest.raises(RewardErrors, match="3 of 10 "):
            scoring.finish()


def test_whoever_leaves_early_leaves_no_thread_and_no_process_and_can_score_again() -> None:
    others = set(psutil.Process().children())
    with acting() as scorer:
        scorer.score([samples("one")])
        assert set(psutil.Process().children()) > others
        with scorer.begin(4) as scoring:
            scoring.add(0, samples("hang", "one"))
        assert not [thread for thread in threading.enumerate() if thread.name == "scoring"]
        assert set(psutil.Process().children()) == others
        assert scorer.score([samples("one")]).total.tolist() == [1.0]


@pytest.mark.thorough
def test_whoever_ends_the_wait_for_a_function_that_hangs_is_heard() -> None:
    class Shutdown(Exception):
        pass

    told: list[int] = []

    def stop(done: int) -> None:
        told.append(done)
        if done and len(told) > 2:
            raise Shutdown

    with acting(time_limit=600) as scorer, pytest.raises(Shutdown):  # longer than a test may take
        scorer.score([samples("one", "hang")], stop)
    assert told[-1] == 1


def test_judges_are_asked_before_all_is_drawn_and_never_more_at_once_than_allowed(service: Service) -> None:
    rewards = Rewards(functions=[Judge(name="kind", endpoint="strict")])

    def slowly(one: Service, handler: object) -> None:
        if len(one.bodies) > 1:  # the first goes alone
            wait_until(lambda: one.most == 2, "two are asked at once")
        says("5")(one, handler)  # type: ignore[arg-type]

    service.act = slowly
    strict = endpoint(service, max_concurrent=2)
    with RewardScorer(rewards, RewardResources(judges={"strict": strict})) as scorer, scorer.begin(6) as scoring:
        scoring.add(2, samples("c", "d"))
        wait_until(lambda: len(service.bodies) == 2, "two are asked")  # before the others are there
        scoring.add(0, samples("a", "c"))
        scoring.add(4, samples("e", "a"))
        scores = scoring.finish()
        spent = scorer.take_metrics()
    strict.close()
    assert scores.total.tolist() == [0.5] * 6
    assert service.most == 2
    assert len(service.bodies) == 4  # equal questions are asked once, whichever group they come from
    assert spent["judge/kind/cached"] == 2
    assert spent["judge/kind/prompt_tokens"] == 400
