"""What a run recorded of a step: its scores, which are never asked for again, and what a replay of the step has to equal."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from backend.contract.base import clean, finite
from backend.contract.groups import Group, GroupReport
from backend.contract.reward import KL_PENALTY, Rewards
from worker.algorithms.total_reward import total_reward
from worker.errors import RunFailure
from worker.group_step import Drawn
from worker.learner import Update
from worker.rewards.scoring import Sample, Scores

COMPARED = ("loss", "grad_norm", "learning_rate")
"""The metrics of a step that its replay has to equal."""

Recorded = Group | GroupReport


class NotTheSame(RunFailure):
    """A replay is not what the run recorded, so nothing of it is shown as the run's."""

    def __init__(self, step: int, what: str) -> None:
        super().__init__(
            "replay_differs",
            f"Step {step} cannot be done again exactly: {what}. The data, the model's files or the machine are not those that trained "
            "the run, and what comes of it would not be about this step.",
        )


@dataclass(frozen=True)
class StepRecord:
    """The groups of a step, and its metrics by name."""

    step: int
    groups: Sequence[Recorded]
    metrics: Mapping[str, float | None]

    @property
    def trained(self) -> list[Recorded]:
        """The groups that were trained on, in their order."""
        return [group for group in self._by_index() if group.state not in ("filtered", "probe")]

    @property
    def probes(self) -> list[Recorded]:
        """The groups of the probes; none at most steps."""
        return [group for group in self._by_index() if group.state == "probe"]

    def _by_index(self) -> list[Recorded]:
        return sorted(self.groups, key=lambda group: group.index)

    def require_same(self, drawn: Drawn, update: Update) -> None:
        """Raises NotTheSame unless advantages, log-probs and loss equal the recorded ones, bit for bit."""
        rollout, tokens = drawn.batch.rollout, drawn.batch.tokens
        recorded = [completion for group in self.trained for completion in group.completions]
        if len(recorded) != rollout.rows:
            raise NotTheSame(
                self.step, f"{len(recorded):,} completions are recorded, and {rollout.rows:,} were drawn now"
            )
        found = {"advantage": drawn.credit.advantages_R(tokens.mask), "logprob_sum": tokens.sums("old_logprob")}
        for name, values_R in found.items():
            for row, (one, value) in enumerate(zip(recorded, map(finite, values_R.tolist()), strict=True)):
                if (before := getattr(one, name)) != value:
                    place = f"completion {row % rollout.group_size} of group {row // rollout.group_size}"
                    raise NotTheSame(self.step, f"the {name} of {place} was {before}, and now it is {value}")
        for name in COMPARED:
            if self.metrics.get(name) != (now := finite(update.metrics[name])):
                raise NotTheSame(self.step, f"{name} was {self.metrics.get(name)}, and now it is {now}")


class RecordedScores:
    """Scores completions by what a run recorded of them: a scorer that asks nobody. One step after the other is opened."""

    def __init__(self, rewards: Rewards) -> None:
        self._rewards = rewards
        self._step = 0
        self._groups: dict[str, list[Recorded]] = {}

    def open(self, record: StepRecord) -> None:
        """Score the next completions by the records of this step."""
        self._step, self._groups = record.step, defaultdict(list)
        for group in sorted(record.groups, key=lambda group: group.index):
            if group.state != "probe":
                self._groups[group.prompt_id].append(group)

    @contextmanager
    def begin(self, count: int, **_: int) -> Iterator["RecordedScoring"]:
        """See `Scorer`."""
        yield RecordedScoring(self, count)

    def require_scored(self, *_: object) -> None:
        """The run went on with these scores."""

    def take_metrics(self, *_: object) -> dict[str, float]:
        """Nothing was asked."""
        return {}

    def take(self, samples: Sequence[Sample]) -> Recorded:
        """The record of a group with these completions, which serves once. Raises NotTheSame if there is none."""
        prompt = samples[0].item.id
        texts = [(clean(one.completion), one.token_count) for one in samples]
        candidates = self._groups.get(prompt, [])
        for place, group in enumerate(candidates):
            if [(one.text, one.token_count) for one in group.completions] == texts:
                return candidates.pop(place)
        what = "other completions are recorded of it" if candidates else "the run recorded no group of it there"
        raise NotTheSame(self._step, f"the prompt {prompt!r} was drawn, and {what}")

    def total(self, raw: Mapping[str, float | None]) -> float:
        """The total reward of a completion; NaN if it is unscored."""
        return total_reward(raw, self._rewards)


class RecordedScoring:
    """The scores of one rollout, looked up group by group."""

    def __init__(self, scores: RecordedScores, count: int) -> None:
        self._scores = scores
        self._found: list[Recorded | None] = [None] * count  # by the place of a group's first completion

    def add(self, first: int, samples: Sequence[Sample]) -> None:
        """See `OpenScoring`."""
        self._found[first] = self._scores.take(samples)

    def check(self) -> None:
        """Nothing goes wrong later."""

    def finish(self, *_: object) -> Scores:
        """See `OpenScoring`. The penalty that the run recorded beside the rewards is none of them."""
        completions = [one for group in self._found if group is not None for one in group.completions]
        components = [[score for score in one.rewards if score.name != KL_PENALTY] for one in completions]
        totals = [self._scores.total({score.name: score.raw for score in parts}) for parts in components]
        return Scores(components, np.array(totals, dtype=np.float64))
