"""Scoring: every completion by every reward: functions in a process that can be killed, judges, and reward models."""

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from backend.contract.base import Json
from backend.contract.reward import Judge, LearnedReward, Python, RewardFunction, Rewards
from worker.errors import RunFailure
from worker.rewards.child import Child, ChildLost, ChildNotReady, ChildRefused
from worker.rewards.composite import counting, total_reward
from worker.rewards.judge import JudgeScorer
from worker.rewards.judge_cache import JudgeCache
from worker.rewards.learned import learned_outcomes
from worker.rewards.resources import RewardResources, RewardUnavailable
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
    """A completion to score, and the item that it answers."""

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
    """Scores completions by a run's rewards; `resources` is what some of them need of the worker.

    The process of the functions starts with the first call and lives until `close`; one that a completion hung or crashed
    is replaced, and only that completion stays unscored. Raises RewardUnavailable where the worker lacks what a reward names.
    """

    def __init__(
        self,
        rewards: Rewards,
        resources: RewardResources | None = None,
        *,
        functions_module: str = "worker.rewards.functions",
    ) -> None:
        self._resources = resources or RewardResources()
        self._resources.require(rewards)
        self._rewards = rewards
        self._functions = [one for one in rewards.functions if not isinstance(one, Judge | LearnedReward)]
        cache = JudgeCache(self._resources.judge_cache)
        self._judges = {
            judge.name: JudgeScorer(judge, self._resources.judges[judge.endpoint], cache)
            for judge in rewards.functions
            if isinstance(judge, Judge)
        }
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

    def score(
        self, samples: Sequence[Sample], on_progress: Callable[[int], None] | None = None, *, step_size: int = 0
    ) -> Scores:
        """Every sample's components and total; `on_progress` hears how many samples are done, and may raise to end it.

        Raises RewardContractError where a function returns no number, RewardErrors as soon as more than the share
        `max_unscored` of the samples (of `step_size`, where they are a few that are drawn again for a larger step) is sure to
        stay unscored, RewardProcessError where the process does not start.
        """
        whole = max(len(samples), step_size)
        tell = on_progress or (lambda _: None)
        components: list[list[Score]] = []
        unscored: list[Score] = []
        counts = counting(self._rewards)
        finished = False
        try:
            for scores in self._score_each(samples, waiting=lambda: tell(len(components))):
                components.append(scores)
                unscored += [score for score in scores if score.raw is None and score.name in counts][:1]
                if len(unscored) > self._rewards.max_unscored * whole:
                    raise _too_many(unscored, whole, self._rewards.max_unscored)
                tell(len(components))
            finished = True
        finally:
            if not finished:
                self.close()  # it may be in the midst of a batch
            elif self._child is not None:
                _log_printed(self._child)
        totals = [total_reward({score.name: score.raw for score in scores}, self._rewards) for scores in components]
        return Scores(components, np.array(totals, dtype=np.float64))

    def take_metrics(self) -> dict[str, float]:
        """What scoring cost since the last call: `judge/<name>/prompt_tokens`, `…/completion_tokens`, `…/cached`."""
        return {name: value for judge in self._judges.values() for name, value in judge.take_metrics().items()}

    def _score_each(self, samples: Sequence[Sample], waiting: Callable[[], None]) -> Iterator[list[Score]]:
        with ExitStack() as stack:
            # The judges are asked before the process and the reward models are busy: they answer meanwhile.
            read = [(sample.item, sample.completion) for sample in samples]
            by_name = {name: stack.enter_context(judge.asked(read, waiting)) for name, judge in self._judges.items()}
            by_process = stack.enter_context(closing(self._outcomes(samples)))
            for reward in self._rewards.functions:
                if isinstance(reward, LearnedReward):
                    by_name[reward.name] = learned_outcomes(self._resources.models[reward.name], read)
            for _ in samples:
                yield [_score(one, next(by_name.get(one.name, by_process))) for one in self._rewards.functions]

    def _outcomes(self, samples: Sequence[Sample]) -> Generator[dict[str, Json]]:
        """The outcome of every call to the process, sample by sample; one that is lost is replaced for the calls after."""
        width = len(self._functions)
        payload: list[Json] = [_payload(sample, self._reads_rows) for sample in samples]
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
            except ChildRefused as refusal:
                self.close()
                raise _not_importable(str(refusal)) from None
            except ChildNotReady as reason:
                self.close()
                if is_new:
                    raise RewardProcessError(
                        "reward_process", "the process that runs the reward functions does not start", str(reason)
                    ) from None

    @property
    def _reads_rows(self) -> bool:
        """Whether some function is given the prompt and the whole row, which may be long."""
        return any(isinstance(function, Python) for function in self._functions)

    def _settings(self) -> dict[str, Json]:
        functions: list[Json] = [
            {"kind": function.kind, "params": function.model_dump(mode="json", exclude={"name", "kind", "weight"})}
            for function in self._functions
        ]
        path: list[Json] = [str(self._resources.path.resolve())] if self._resources.path else []
        return {"functions": functions, "time_limit": self._rewards.time_limit, "path": path}


def _log_printed(child: Child) -> None:
    printed = child.take_printed()
    if printed:
        logger.info("the reward functions printed: %r", printed)


def _payload(sample: Sample, with_row: bool) -> dict[str, Json]:
    item = sample.item
    payload: dict[str, Json] = {
        "text": sample.completion,
        "token_count": sample.token_count,
        "answer": item.answer,
        "verifier": dict(item.verifier),
    }
    if with_row:
        prompt: Json = item.question if item.messages is None else [dict(message) for message in item.messages]
        payload |= {"prompt": prompt, "columns": dict(item.columns)}
    return payload


def _score(function: RewardFunction, outcome: dict[str, Json]) -> Score:
    breach = outcome.get("breach")
    if isinstance(breach, dict):
        which = f"{function.name!r} ({function.function})" if isinstance(function, Python) else f"{function.name!r}"
        raise RewardContractError(
            "reward_contract", f"the reward {which} must return {breach['expected']}; it returned {breach['got']}"
        )
    value, error = outcome.get("value"), outcome.get("error")
    raw = float(value) if isinstance(value, int | float) else None
    return Score(function.name, raw, function.weight, None if error is None else str(error))


def _not_importable(reason: str) -> RewardUnavailable:
    summary, _, trace = reason.partition("\n")
    hint = "GROUPSCOPE_REWARD_PATH names the folder that the worker looks in, beside what is installed with it"
    return RewardUnavailable("reward_unavailable", f"The reward function {summary}. {hint}.", trace)


def _too_many(unscored: Sequence[Score], samples: int, allowed: float) -> RewardErrors:
    first = unscored[0]
    summary = (first.error or "").partition("\n")[0]
    return RewardErrors(
        "reward_errors",
        f"at least {len(unscored)} of {samples} completions could not be scored, more than the share of {allowed:g} that the "
        f"run allows; the first one by the reward {first.name!r}: {summary}",
        first.error,
    )
