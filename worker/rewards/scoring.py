"""Scoring: every completion by every reward: functions in a process that can be killed, judges, and reward models."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from hashlib import sha256
from itertools import accumulate, chain
from threading import Condition, Thread

import numpy as np
from numpy.typing import NDArray

from backend.contract.base import Json
from backend.contract.groups import RewardScore
from backend.contract.reading import FIRST
from backend.contract.records import RewardText
from backend.contract.reward import Judge, LearnedReward, Python, Ranking, RewardFunction, Rewards
from worker.algorithms.total_reward import counting, total_reward
from worker.errors import RunFailure
from worker.policy.classifier import RewardModel
from worker.ranks.ranks import ALONE, Ranks
from worker.rewards.child_process import LOOK_SECONDS
from worker.rewards.function_process import FunctionProcess
from worker.rewards.judge import AskAboutGroup, EndpointScorer, JudgeCache, JudgeScorer
from worker.rewards.ranking import RankingScorer
from worker.rewards.resources import RewardResources
from worker.tasks.items import Item


class RewardContractError(RunFailure):
    """A reward function returned something that is not a score."""


class RewardErrors(RunFailure):
    """Too many completions could not be scored."""


@dataclass(frozen=True)
class Sample:
    """A completion to score, with the item that it answers; its tokens, and the prompt as the model `read` it, if they are known."""

    completion: str
    token_count: int
    item: Item
    ids: Sequence[int] | None = None
    read: str = ""


@dataclass(frozen=True)
class Scores:
    """The verdicts on N completions, in their order; `total` (N,) is NaN if a completion is unscored."""

    components: list[list[RewardScore]]
    total: NDArray[np.float64]


class RewardScorer:
    """Scores completions by a run's rewards; `resources` is what some of them need of the worker.

    The process of the functions starts with the first call and lives until `close`; one that a completion hung or crashed
    is replaced, and only that completion stays unscored. Raises RewardUnavailable if the worker lacks what a reward names.
    """

    def __init__(
        self,
        rewards: Rewards,
        resources: RewardResources | None = None,
        *,
        functions_module: str = "worker.rewards.functions",
    ) -> None:
        self.rewards, self.resources = rewards, resources or RewardResources()
        self.resources.require(rewards)
        cache, reading = JudgeCache(self.resources.judge_cache), rewards.reading or FIRST
        self.judges: dict[str, EndpointScorer] = {}
        for one in rewards.functions:
            if isinstance(one, Judge):
                self.judges[one.name] = JudgeScorer(one, self.resources.judges[one.endpoint], cache, reading)
            elif isinstance(one, Ranking):
                self.judges[one.name] = RankingScorer(one, self.resources.judges[one.endpoint], cache, reading)
        self.process = FunctionProcess(
            [one for one in rewards.functions if not isinstance(one, Judge | Ranking | LearnedReward)],
            time_limit=rewards.time_limit,
            path=self.resources.path,
            own=self.resources.own,
            functions_module=functions_module,
            reading=reading,
        )

    def __enter__(self) -> "RewardScorer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process; the next scoring starts another."""
        self.process.close()

    def load_own(self) -> list[RewardText]:
        """The person's own files that score; their functions are imported at the first call.

        Raises RewardUnavailable if one cannot be, RewardProcessError if the process does not start.
        """
        own = any(isinstance(one, Python) and one.file for one in self.rewards.functions)
        texts = self.process.start() if own else {}
        return [
            RewardText(name=name, sha256=sha256(text.encode()).hexdigest(), text=text) for name, text in texts.items()
        ]

    def begin(self, count: int, *, step_size: int = 0) -> "Scoring":
        """The scoring of `count` samples that come group by group, one scoring at a time.

        It raises RewardContractError if a function returns no number, RewardErrors as soon as more than the share `max_unscored`
        of the samples (of `step_size`, if they are a few that are drawn again for a larger step) is sure to stay unscored,
        RewardProcessError if the process does not start.
        """
        return Scoring(self, count, step_size)

    def score(
        self, groups: Sequence[Sequence[Sample]], on_progress: Callable[[int], None] = lambda done: None
    ) -> Scores:
        """Components and total of every sample, group after group; `on_progress` hears how many are done, and may raise to end it.

        Raises what `begin` says.
        """
        with self.begin(sum(map(len, groups))) as scoring:
            first = 0
            for group in groups:
                scoring.add(first, group)
                first += len(group)
            return scoring.finish(on_progress)

    def require_scored(self, scores: Scores, whole: int) -> None:
        """Raises RewardErrors if more than the share `max_unscored` of `whole` completions stayed unscored, each part of which was
        within it."""
        counts = counting(self.rewards)
        missing = [[one for one in parts if one.raw is None and one.name in counts] for parts in scores.components]
        _require_scored(self.rewards, [found[0] for found in missing if found], whole)

    def take_metrics(self, ranks: Ranks = ALONE) -> dict[str, float]:
        """What judges cost all processes since the last call, by `judge/<name>/…`: prompt_tokens, completion_tokens, cached; how they judge."""
        return {name: value for judge in self.judges.values() for name, value in judge.take_metrics(ranks).items()}


class Scoring:
    """Samples are scored from when they are added, in a thread of its own, while others are still drawn. To be entered once.

    Functions and judges are asked at once; they compute elsewhere. Reward models wait for `finish`: they would compute on the
    device that samples, and one batch of all is faster. Leaving before `finish` ends what is under way.
    """

    def __init__(self, scorer: RewardScorer, count: int, step_size: int) -> None:
        self._rewards, self._process, self._judges = scorer.rewards, scorer.process, scorer.judges
        self._models = scorer.resources.models
        self._whole = max(count, step_size)
        self._counts = counting(self._rewards)
        self._samples: list[Sample | None] = [None] * count
        self._verdicts: list[dict[str, RewardScore]] = [{} for _ in range(count)]  # by the reward's name
        self._unscored: dict[int, RewardScore] = {}  # by the sample's place: the first verdict that is missing
        self._done = 0
        self._now = sum(not isinstance(one, LearnedReward) for one in self._rewards.functions)
        self._added: list[_Batch] = []
        self._changed = Condition()
        self._asks: dict[str, AskAboutGroup] = {}
        self._open = ExitStack()
        self._thread = Thread(target=self._work, name="scoring", daemon=True)
        self._error: Exception | None = None
        self._complete = self._left = self._finished = False

    def __enter__(self) -> "Scoring":
        self._asks = {name: self._open.enter_context(judge.asking(self._look)) for name, judge in self._judges.items()}
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left = True
        self._close()
        self._open.close()
        self._thread.join()
        if self._finished:
            self._process.log_printed()
        else:
            self._process.close()  # it may be in the midst of a batch

    def add(self, first: int, samples: Sequence[Sample]) -> None:
        """Score a group, whose places among all begin at `first`. Raises what went wrong with earlier ones."""
        self.check()
        self._samples[first : first + len(samples)] = samples
        read = [(sample.item, sample.completion) for sample in samples]
        # The judges are asked before the process is busy with these: they answer meanwhile.
        batch = _Batch(first, samples, {name: ask(read) for name, ask in self._asks.items()})
        with self._changed:
            self._added.append(batch)
            self._changed.notify()

    def check(self) -> None:
        """Raises what went wrong so far."""
        if self._error is not None:
            raise self._error

    def finish(self, on_progress: Callable[[int], None] = lambda done: None) -> Scores:
        """The scores of all, once all are added; `on_progress` hears now and then how many are done, and may raise."""
        self._close()
        self.check()
        on_progress(self._done)
        samples = [sample for sample in self._samples if sample is not None]
        learned = [one for one in self._rewards.functions if isinstance(one, LearnedReward)]
        read = [(sample.item, sample.completion) for sample in samples]
        outcomes = {one.name: list(_learned_outcomes(self._models[one.name], read)) for one in learned}
        while self._thread.is_alive():
            self._thread.join(LOOK_SECONDS)
            on_progress(self._done)
        self.check()
        for place, verdicts in enumerate(self._verdicts):
            verdicts |= {one.name: _score(one, outcomes[one.name][place]) for one in learned}
            self._count(place)
        self._finished = True
        names = [one.name for one in self._rewards.functions]
        components = [[verdicts[name] for name in names] for verdicts in self._verdicts]
        totals = [total_reward({score.name: score.raw for score in scores}, self._rewards) for scores in components]
        return Scores(components, np.array(totals, dtype=np.float64))

    def _work(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._added or self._complete)
                    batches, self._added = self._added, []
                if not batches:  # and no more comes
                    return
                self._score(batches)
        except Exception as error:  # noqa: BLE001 — the boundary of a thread: the next caller gets it
            self._error = error

    def _close(self) -> None:
        """Say that no more samples will be added."""
        with self._changed:
            self._complete = True
            self._changed.notify()

    def _score(self, batches: "list[_Batch]") -> None:
        """In the order in which the samples came: the verdicts do not depend on it."""
        self._look()
        samples = [sample for batch in batches for sample in batch.samples]
        payload: list[Json] = [
            self._process.payload(one.item, one.completion, one.token_count, one.ids, one.read) for one in samples
        ]
        sizes = [len(batch.samples) for batch in batches]
        calls = [
            self._process.calls(first, size) for first, size in zip(accumulate(sizes, initial=0), sizes, strict=False)
        ]
        with closing(self._process.outcomes(payload, [*chain(*calls)], self._look)) as by_process:
            for start, batch, of_batch in zip(accumulate(sizes, initial=0), batches, calls, strict=False):
                for call in of_batch:
                    self._take(
                        self._process.functions[call.function], batch.first + call.first - start, next(by_process)
                    )
                for name, outcomes in batch.by_judge.items():
                    for place, outcome in enumerate(outcomes, batch.first):
                        self._take(self._judges[name].function, place, [outcome])

    def _take(self, function: RewardFunction, first: int, outcomes: Sequence[Json]) -> None:
        """Note what one function says of the samples from `first` on. Raises RewardErrors if too many stay unscored."""
        for place, outcome in enumerate(outcomes, first):
            self._verdicts[place][function.name] = _score(function, outcome)
            self._count(place)
            self._done += len(self._verdicts[place]) == self._now

    def _count(self, place: int) -> None:
        """Note a sample that stays unscored. Raises RewardErrors if they are too many."""
        verdicts = self._verdicts[place].values()
        missing = [score for score in verdicts if score.raw is None and score.name in self._counts]
        if missing and place not in self._unscored:
            self._unscored[place] = missing[0]
            _require_scored(self._rewards, list(self._unscored.values()), self._whole)

    def _look(self) -> None:
        if self._left:
            raise _Left


def _require_scored(rewards: Rewards, unscored: Sequence[RewardScore], whole: int) -> None:
    """Raises RewardErrors if these are more of `whole` completions than the run allows."""
    if len(unscored) > rewards.max_unscored * whole:
        first = unscored[0]
        raise RewardErrors(
            "reward_errors",
            f"at least {len(unscored)} of {whole} completions could not be scored, more than the share of "
            f"{rewards.max_unscored:g} that the run allows; the first one by the reward {first.name!r}: "
            f"{(first.error or '').partition(chr(10))[0]}",
            first.error,
        )


class _Left(Exception):
    """Nobody waits for the scores any more."""


@dataclass(frozen=True)
class _Batch:
    """Samples that came together, and what each judge says of them, one after the other."""

    first: int
    samples: Sequence[Sample]
    by_judge: Mapping[str, Iterator[dict[str, Json]]]


def _score(function: RewardFunction, outcome: Json) -> RewardScore:
    outcome = outcome if isinstance(outcome, dict) else {}
    breach = outcome.get("breach")
    if isinstance(breach, dict):
        which = f"{function.name!r} ({function.function})" if isinstance(function, Python) else f"{function.name!r}"
        raise RewardContractError(
            "reward_contract", f"the reward {which} must return {breach['expected']}; it returned {breach['got']}"
        )
    value, error = outcome.get("value"), outcome.get("error")
    raw = float(value) if isinstance(value, int | float) else None
    error = None if error is None else str(error)
    return RewardScore(name=function.name, raw=raw, weight=function.weight, error=error)


def _learned_outcomes(model: RewardModel, read: Sequence[tuple[Item, str]]) -> Iterator[dict[str, Json]]:
    """The outcome for each item and completion, in order; a text beyond the model's context stays unscored."""
    sequences = [
        model.token_ids(item.question if item.messages is None else item.messages, text) for item, text in read
    ]
    limit = math.inf if model.context is None else model.context
    scores = iter(model.scores([sequence for sequence in sequences if len(sequence) <= limit]))
    for sequence in sequences:
        if len(sequence) > limit:
            yield {
                "error": f"reward_error: prompt and completion have {len(sequence)} tokens, and the reward model reads at most {limit}"
            }
        else:
            score = next(scores)
            unscored = f"reward_value: the reward model gave {score}, which leaves the completion unscored"
            yield {"value": score} if math.isfinite(score) else {"error": unscored}
