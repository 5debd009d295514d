"""Scorers by functions that misbehave and by a judge, and what a test reads of their scores."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from judge_service import Service
from pydantic import AnyHttpUrl

from backend.contract.reward import Judge, Length, Ranking, Rewards
from worker.rewards.judge_endpoint import JudgeEndpoint
from worker.rewards.resources import RewardResources
from worker.rewards.scoring import RewardScorer, Sample, Scores
from worker.settings import JudgeSettings
from worker.tasks.items import Item

ITEM = Item("arithmetic:2 + 2 x 6", "Calculate 2 + 2 x 6", None, "14", {"kind": "numeric"})
HELLO = Item("one", "Say hello", ({"role": "user", "content": "Say hello"},), "hello", {"kind": "exact"})


def raws(scores: Scores) -> list[float | None]:
    """What each completion got from the first reward."""
    return [parts[0].raw for parts in scores.components]


def error(scores: Scores, index: int = 0) -> str:
    """Why the first reward left a completion unscored."""
    assert scores.components[index][0].raw is None
    return scores.components[index][0].error or ""


def samples(*texts: str) -> list[Sample]:
    return [Sample(text, 25, ITEM) for text in texts]


def acting(*, max_unscored: float = 1.0, time_limit: float = 60.0) -> RewardScorer:
    """By a function that does what a completion says: misbehaving.py."""
    rewards = Rewards(functions=[Length(name="act")], max_unscored=max_unscored, time_limit=time_limit)
    return RewardScorer(rewards, functions_module="tests.worker.rewards.misbehaving")


def endpoint(service: Service, **changes: Any) -> JudgeEndpoint:
    values = {"url": AnyHttpUrl(f"{service.url}/v1"), "model": "judge-1", "requests_per_minute": 1e6} | changes
    return JudgeEndpoint("strict", JudgeSettings.model_validate(values))


def judged(
    service: Service,
    *texts: str,
    judge: Judge | Ranking = Judge(name="kind", endpoint="strict"),  # noqa: B008
    items: Sequence[Item] = (HELLO,),
    cache: Path | None = None,
    metrics: dict[str, float] | None = None,
    on_progress: Callable[[int], None] = lambda done: None,
    max_unscored: float = 1.0,
    reading: int | None = None,
    **changes: Any,
) -> Scores:
    """Scores of the completions of each item by the service; what it cost is put into `metrics`."""
    strict = endpoint(service, **changes)
    rewards = Rewards(functions=[judge], max_unscored=max_unscored, reading=reading)
    try:
        with RewardScorer(rewards, RewardResources(judges={"strict": strict}, judge_cache=cache)) as scorer:
            scored = scorer.score(
                [[Sample(text, 1, item) for text in texts or ("hello",)] for item in items], on_progress
            )
            if metrics is not None:
                metrics |= scorer.take_metrics()
            return scored
    finally:
        strict.close()
