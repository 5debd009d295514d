"""A run's records as the inspector reads them: completions in a list, prompts through time, a step in numbers, distributions."""

from typing import Literal

from backend.contract.base import CleanText, Count, Record, ShortText
from backend.contract.groups import CompletionNumbers, FinishReason, GroupNumbers, GroupState


class CompletionHit(Record):
    """A completion in a list: its place, its numbers, and the part of its text around the words that were searched."""

    id: int
    group_id: int
    step: Count
    group_index: Count
    index: Count
    prompt_id: ShortText
    prompt: CleanText
    state: GroupState
    excerpt: CleanText
    token_count: Count
    finish_reason: FinishReason
    reward: float | None = None
    advantage: float | None = None


class PromptSummary(Record):
    """One prompt of a run through time. Means are of its first and latest scored draw; `rewards` has at most 40 of them, by step."""

    prompt_id: ShortText
    prompt: CleanText
    draws: Count
    probes: Count  # of them, draws as a probe
    first_step: Count
    last_step: Count
    reward_first: float | None = None
    reward_last: float | None = None
    rewards: list[float | None] = []


class CommonPrompt(Record):
    """A prompt that several runs have drawn: its draws in each of them, by the run's number."""

    draws: dict[int, PromptSummary]


class Segment(Record):
    """Steps of a run's history, from `first` to `last` (None: to its end), that another run has made, or the run itself."""

    run_id: int
    first: int
    last: int | None = None


class Lineage(Record):
    """Of what a run's history is made: of a fork first its trunk, of any other run only its own steps."""

    run_id: int
    segments: list[Segment]

    def shared_with(self, other: "Lineage") -> int:
        """How many steps, from the first on, two histories have in common."""
        steps = 0
        for mine, theirs in zip(self.segments, other.segments, strict=False):
            if mine.run_id != theirs.run_id:
                break
            ends = [end for end in (mine.last, theirs.last) if end is not None]
            steps = min(ends) + 1 if ends else steps
            if mine.last != theirs.last:
                break
        return steps


class Difference(Record):
    """Where two runs part. Up to `shared` steps they are the same records, and from there to `compared` each step was compared.

    `step`, `group_index` and `what` are of the first group whose prompt, or whose completions, are others; None if there is none.
    """

    shared: int
    compared: int
    step: int | None = None
    group_index: int | None = None
    what: Literal["prompt", "completions"] | None = None


class CompletionScores(CompletionNumbers):
    """A completion in numbers."""

    id: int
    has_trace: bool = False


class GroupScores(GroupNumbers):
    """A group in numbers; `prompt` is its beginning."""

    id: int
    prompt: CleanText
    completions: list[CompletionScores]


class StepScores(Record):
    """Live groups of a step, in order; `next_cursor` is None on the last page."""

    run_id: int
    step: Count
    groups: list[GroupScores]
    next_cursor: str | None = None


class Distribution(Record):
    """Histograms over steps: `counts[i][j]` values of step `steps[i]` lie between `edges[j]` and `edges[j + 1]`."""

    run_id: int
    value: str
    edges: list[float]
    steps: list[int]
    counts: list[list[int]]
    missing: list[int]  # of each step: unscored, or without an advantage
