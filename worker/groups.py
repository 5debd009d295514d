"""Groups of completions: sampled and scored together, taken apart, put together, and replaced where they are dead."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from backend.contract.advantage import Advantage
from backend.contract.algorithm import Logprobs
from backend.contract.training import Decoding
from worker.credit import live_in
from worker.policy.policy import Policy
from worker.ranks.ranks import ALONE, Ranks
from worker.ranks.waiting import WAITING
from worker.rewards.scoring import Sample, Scores
from worker.rollout.draws import Draws
from worker.rollout.engine import Completion, Engine, OnGroup, Request, Rollout, quiet
from worker.tasks.items import Item


class PhaseClock:
    """Seconds of each phase of a step, by a monotonic clock, and what this process did in it."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._seconds: dict[str, float] = {}
        self.worked: dict[str, float] = {}
        """Seconds of each phase in which this process did not wait for others."""
        self.tokens = 0
        """What this process sampled."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count what runs inside towards a phase."""
        began, waited = time.monotonic(), WAITING.seconds
        yield
        seconds = time.monotonic() - began
        self.add(name, seconds)
        self.worked[name] = self.worked.get(name, 0.0) + max(0.0, seconds - (WAITING.seconds - waited))

    def add(self, name: str, seconds: float) -> None:
        """Count seconds that were measured elsewhere."""
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    def metrics(self, tokens: int) -> dict[str, float]:
        """`time/<phase>`, `step_time`, and the sampled tokens per second of rollout."""
        total = time.monotonic() - self._began
        rollout = self._seconds.get("rollout", 0.0)
        return {
            **{f"time/{name}": seconds for name, seconds in self._seconds.items()},
            "step_time": total,
            "tokens_per_second": tokens / rollout if rollout > 0 else float("nan"),
        }


OnProgress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Scored:
    """A rollout and its scores."""

    rollout: Rollout
    scores: Scores

    @property
    def rewards_P_G(self) -> NDArray[np.float64]:
        """In float64, so that what a person recomputes from the rewards on the screen is what trained the policy."""
        return self.scores.total.reshape(-1, self.rollout.group_size)

    def groups(self, indices: Sequence[int]) -> "Scored":
        """These groups alone, in this order."""
        size = self.rollout.group_size
        rows = [p * size + g for p in indices for g in range(size)]
        rollout = replace(
            self.rollout,
            items_P=[self.rollout.items_P[p] for p in indices],
            prompt_texts_P=[self.rollout.prompt_texts_P[p] for p in indices],
            prompt_ids_P=[self.rollout.prompt_ids_P[p] for p in indices],
            completions_R=[self.rollout.completions_R[row] for row in rows],
        )
        return Scored(rollout, Scores([self.scores.components[row] for row in rows], self.scores.total[rows]))

    def __add__(self, other: "Scored") -> "Scored":
        mine, others = self.rollout, other.rollout
        rollout = replace(
            mine,
            items_P=[*mine.items_P, *others.items_P],
            prompt_texts_P=[*mine.prompt_texts_P, *others.prompt_texts_P],
            prompt_ids_P=[*mine.prompt_ids_P, *others.prompt_ids_P],
            completions_R=[*mine.completions_R, *others.completions_R],
        )
        components = [*self.scores.components, *other.scores.components]
        return Scored(rollout, Scores(components, np.concatenate([self.scores.total, other.scores.total])))


class OpenScoring(Protocol):
    """A scoring that is under way; see `worker.rewards.scoring.Scoring`."""

    def add(self, first: int, samples: Sequence[Sample], /) -> None:
        """Score a group, whose places among all begin at `first`."""

    def check(self) -> None:
        """Raises what went wrong so far."""

    def finish(self, on_progress: Callable[[int], None], /) -> Scores:
        """The scores of all, once all are added."""


class Scorer(Protocol):
    """What scores completions: a run's rewards, or its records."""

    def begin(self, count: int, *, step_size: int = 0) -> AbstractContextManager[OpenScoring]:
        """The scoring of `count` samples, which come group by group."""

    def require_scored(self, scores: Scores, whole: int, /) -> None:
        """Raises if more completions of a step stayed unscored than the run allows."""

    def take_metrics(self, ranks: Ranks = ALONE, /) -> dict[str, float]:
        """What scoring cost since the last call."""


@dataclass(frozen=True)
class GroupSampler:
    """Draws groups from the policy, as its weights are at the call, and scores each one while others are still drawn."""

    policy: Policy
    engine: Engine
    scorer: Scorer | None = None  # None: every completion stays unscored

    def sample_and_score(
        self,
        items: Sequence[Item],
        group_size: int,
        decoding: Decoding,
        draws: Draws | None,
        *,
        on_progress: OnProgress = quiet,
        clock: PhaseClock | None = None,
        logprobs: Logprobs = "tempered",
        first_group: int = 0,
        step_size: int = 0,
    ) -> Scored:
        """A group of `group_size` scored completions for each item; without `draws` the likeliest tokens are taken.

        `on_progress` gets the phase (`rollout`, then `reward`), the completions done and their total, and may raise. `clock`
        counts the seconds of both phases. `first_group` is the number of the first group among the step's, and `step_size`
        the completions of the whole step, if these are a part of it. Where several processes train, each draws and scores its share of
        the groups, and every one gets all of them. Raises what `Engine.sample` and `RewardScorer.score` raise.
        """
        clock, step_size = clock or PhaseClock(), step_size or len(items) * group_size
        own = self.policy.ranks.share(len(items))
        items, first_group = items[own.start : own.stop], first_group + own.start
        total = len(items) * group_size
        on_progress("rollout", 0, total)  # first: a chat template may take its time
        prompts = [self.policy.encode(item) for item in items]
        texts, ids = [text for text, _ in prompts], [ids for _, ids in prompts]
        request = Request(ids, group_size, decoding, draws, logprobs, first_group)

        def sample(check: Callable[[], None], on_group: OnGroup) -> Rollout:
            def sampled(done: int) -> None:
                check()
                on_progress("rollout", done, total)

            with clock.phase("rollout"):
                completions = self.engine.sample(request, on_progress=sampled, on_group=on_group)
                self.policy.ranks.any(False)  # a rollout has ended when the slowest process's has
            rollout = Rollout(items, texts, ids, group_size, completions)
            clock.tokens += rollout.token_count
            return rollout

        if self.scorer is None:
            rollout = sample(quiet, quiet)
            return self._joined(Scored(rollout, Scores([[] for _ in range(total)], np.full(total, np.nan))))
        with self.scorer.begin(total, step_size=step_size) as scoring:

            def score(p: int, group: list[Completion]) -> None:
                scoring.add(
                    p * group_size, [Sample(one.text, len(one.ids), items[p], one.ids, texts[p]) for one in group]
                )

            rollout = sample(scoring.check, score)
            with clock.phase("reward"):
                scored = Scored(rollout, scoring.finish(lambda done: on_progress("reward", done, total)))
                whole = self._joined(scored)
        if whole is not scored:
            self.scorer.require_scored(whole.scores, step_size)
        return whole

    def _joined(self, own: Scored) -> Scored:
        """The groups of all processes, each of which drew its share."""
        first, *others = self.policy.ranks.gather(own)
        return reduce(add, others, first)


def fill_with_live(
    first: Scored, more: Callable[[int, int], Scored], chosen: Advantage, *, rounds: int
) -> tuple[Scored, Scored | None]:
    """DAPO's dynamic sampling: the batch with its dead groups replaced, and the groups taken out (None if none were).

    `more(count, first_group)` samples and scores groups of further prompts. A replacement takes the place of the group that
    it replaces. After `rounds` rounds what is dead stays, so that a batch is never smaller than it was asked to be.
    """
    batch, filtered = first, None
    sampled = len(first.rollout.items_P)
    for _ in range(rounds):
        dead = _dead(batch, chosen)
        if not dead:
            break
        fresh = more(len(dead), sampled)
        sampled += len(dead)
        useless = _dead(fresh, chosen)
        useful = [p for p in range(len(dead)) if p not in useless]
        replaced = dead[: len(useful)]
        order = list(range(len(batch.rollout.items_P)))
        for place, p in zip(replaced, useful, strict=True):
            order[place] = len(order) + p
        # Of the fresh groups, the dead ones were sampled for nothing; so were those that the useful ones replace.
        gone = batch.groups(replaced) + fresh.groups(useless)
        batch = (batch + fresh).groups(order)
        filtered = gone if filtered is None else filtered + gone
    return batch, filtered


def _dead(scored: Scored, chosen: Advantage) -> list[int]:
    """The groups that tell the chosen estimator nothing."""
    live_P = live_in(chosen, scored.scores, scored.rollout.group_size).tolist()
    return [p for p, live in enumerate(live_P) if not live]
