"""Scoring: every completion by every reward function, in a process that can be killed."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from backend.contract.base import Json
from backend.contract.reward import RewardFunction, Rewards
from worker.errors import RunFailure
from worker.rewards.child import Child, ChildLost, ChildNotReady
from worker.rewards.composite import total_reward
from worker.tasks.items import Item

logger = logging.getLogger(__name__)


class RewardContractError(RunFailure):
    """A reward function returned something that is no score."""


class RewardErrors(RunFailure):
    """Too many completions could not be scored."""


class RewardProcessError(RunFailure):
    """The process that runs the reward functions does not start."""


@dataclass(frozen=True)
class Sample:
    """A completion to score; `prompt` is what the model read."""

    prompt: str
    completion: str
    token_count: int
    item: Item


@dataclass(frozen=True)
class Score:
    """One function's verdict on one completion. `raw` is None where it could not score it, and `error` says why."""

    name: str
    raw: float | None
    weight: float
    error: str | None = None


@dataclass(frozen=True)
class Scores:
    """The verdicts on N completions, in their order; `total` (N,) is NaN where a completion is unscored."""

    components: list[list[Score]]
    total: NDArray[np.float64]


class RewardScorer:
    """Scores completions by a run's reward functions.

    The process starts with the first call and lives until `close`; one that a completion hung or crashed is replaced,
    and only that completion stays unscored.
    """

    def __init__(self, rewards: Rewards, *, functions_module: str = "worker.rewards.functions") -> None:
        self._rewards = rewards
        self._functions_module = functions_module
        self._child: Child | None = None

    def __enter__(self) -> "RewardScorer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the process; the next `score` starts another."""
        if self._child is not None:
            _log_printed(self._child)
            self._child.close()
            self._child = None

    def score(self, samples: Sequence[Sample], on_progress: Callable[[int], None] | None = None) -> Scores:
        """Every sample's components and total; `on_progress` hears how many samples are done.

        Raises RewardContractError where a function returns no number, RewardErrors as soon as more than the share
        `max_unscored` of the samples is sure to stay unscored, RewardProcessError where the process does not start.
        """
        components: list[list[Score]] = []
        unscored: list[Score] = []
        finished = False
        try:
            for scores in self._score_each(samples):
                components.append(scores)
                unscored += [score for score in scores if score.raw is None][:1]
                if len(unscored) > self._rewards.max_unscored * len(samples):
                    raise _too_many(unscored, len(samples), self._rewards.max_unscored)
                if on_progress is not None:
                    on_progress(len(components))
            finished = True
        finally:
            if not finished:
                self.close()  # it may be in the midst of a batch
            elif self._child is not None:
                _log_printed(self._child)
        totals = [total_reward({score.name: score.raw for score in scores}, self._rewards) for scores in components]
        return Scores(components, np.array(totals, dtype=np.float64))

    def _score_each(self, samples: Sequence[Sample]) -> Iterator[list[Score]]:
        outcomes = self._outcomes(samples)
        for _ in samples:
            yield [_score(function, next(outcomes)) for function in self._rewards.functions]

    def _outcomes(self, samples: Sequence[Sample]) -> Iterator[dict[str, Json]]:
        """The outcome of every call, sample by sample; a process that is lost is replaced for the calls after."""
        width = len(self._rewards.functions)
        payload: list[Json] = [_payload(sample) for sample in samples]
        done, total = 0, len(samples) * width
        while done < total:
            is_new = self._child is None
            batch: dict[str, Json] = {"samples": payload[done // width :], "first": done % width}
            try:
                self._child = self._child or Child(self._settings(), self._functions_module)
                for outcome in self._child.outcomes(batch, calls=total - done, time_limit=self._rewards.time_limit):
                    done += 1
                    yield outcome
            except ChildLost as lost:
                self.close()
                done += 1
                yield {"error": str(lost)}
            except ChildNotReady as reason:
                self.close()
                if is_new:
                    raise RewardProcessError(
                        "reward_process", "the process that runs the reward functions does not start", str(reason)
                    ) from None

    def _settings(self) -> dict[str, Json]:
        functions: list[Json] = [
            {"kind": function.kind, "params": function.model_dump(mode="json", exclude={"name", "kind", "weight"})}
            for function in self._rewards.functions
        ]
        return {"functions": functions, "time_limit": self._rewards.time_limit}


def _log_printed(child: Child) -> None:
    printed = child.take_printed()
    if printed:
        logger.info("the reward functions printed: %r", printed)


def _payload(sample: Sample) -> dict[str, Json]:
    return {
        "text": sample.completion,
        "token_count": sample.token_count,
        "answer": sample.item.answer,
        "verifier": dict(sample.item.verifier),
    }


def _score(function: RewardFunction, outcome: dict[str, Json]) -> Score:
    if "breach" in outcome:
        raise RewardContractError(
            "reward_contract",
            f"the reward {function.name!r} must return one number for each completion; "
            f"it returned a value of type {outcome['breach']}",
        )
    value, error = outcome.get("value"), outcome.get("error")
    raw = float(value) if isinstance(value, int | float) else None
    return Score(function.name, raw, function.weight, None if error is None else str(error))


def _too_many(unscored: Sequence[Score], samples: int, allowed: float) -> RewardErrors:
    first = unscored[0]
    summary = (first.error or "").partition("\n")[0]
    return RewardErrors(
        "reward_errors",
        f"at least {len(unscored)} of {samples} completions could not be scored, more than the share of {allowed:g} that the "
        f"run allows; the first one by the reward {first.name!r}: {summary}",
        first.error,
    )
