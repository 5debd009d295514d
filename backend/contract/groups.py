"""The group, the record that everything else is about: one prompt, its completions, and their tokens."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from backend.contract.base import CleanText, Count, LongText, Record, ShortText, cut
from backend.contract.conversation import Turns, length_of
from backend.contract.people import Bookmark, Thumb

ROUNDED = 1e-2
"""An advantage up to this, if all rewards are equal, is a trainer's rounding."""

GroupState = Literal["live", "zero_variance", "unscored", "filtered", "probe"]
"""`filtered`: replaced by dynamic sampling. `probe`: of a fixed prompt that is sampled every few steps, never trained on."""
FinishReason = Literal["stop", "length"]


class RewardScore(Record):
    """One reward component of one completion. `raw` is None if the function could not score it: see `error`; `weight` if nobody recorded it."""

    name: ShortText
    raw: float | None
    weight: float | None
    error: Annotated[CleanText, cut(20_000)] | None = None


class CompletionNumbers(Record):
    """A completion, as a step in numbers has it. Means run over its tokens, in nats; None if they were not computed."""

    index: Count
    token_count: Count
    finish_reason: FinishReason
    rewards: Annotated[list[RewardScore], Field(max_length=64)] = []
    reward: float | None = None
    advantage: float | None = None
    kl_mean: float | None = None
    ratio_mean: float | None = None
    clipped_share: float | None = None

    @property
    def unweighed(self) -> bool:
        """Whether it was scored, and nobody recorded what the scores count in its reward."""
        return self.reward is None and any(one.raw is not None and one.weight is None for one in self.rewards)


class CompletionData(CompletionNumbers):
    """One sampled completion. Sums and means run over its tokens, in nats; None if they were not computed.

    `turns` are the stretches of a conversation's text; without any, all of it is the policy's.
    """

    text: LongText
    turns: Turns = []
    logprob_sum: float | None = None
    logprob_sum_after: float | None = None  # after the update, if telemetry asked for it
    entropy_mean: float | None = None

    @model_validator(mode="after")
    def _turns_are_the_text(self) -> "CompletionData":
        if self.turns and (length := length_of(self.turns)) != len(self.text):
            raise ValueError(f"the text has {len(self.text):,} characters, and its turns need {length:,}")
        return self


class GroupNumbers(Record):
    """A group, as a step in numbers has it. `reward_mean` and `reward_std` are those the estimator used."""

    index: Count
    prompt_id: ShortText
    state: GroupState
    scored: Count
    reward_mean: float | None = None
    reward_std: float | None = None


class GroupData(GroupNumbers):
    """One prompt and its G completions at one step."""

    prompt_text: LongText  # rendered: what the model read
    prompt: LongText = ""  # the question, as the task words it
    answer: LongText | None = None
    truncated: Count = 0


class GroupReport(GroupData):
    """A group as the worker reports it."""

    completions: Annotated[list[CompletionData], Field(min_length=1, max_length=4096)]


class CompletionRecord(CompletionData):
    """A stored completion."""

    id: int
    has_trace: bool = False
    thumb: Thumb | None = None


class GroupSummary(GroupData):
    """A group in a list: rewards, advantages and the ends of its best and worst texts instead of whole completions."""

    id: int
    run_id: int
    attempt: int
    step: int
    rewards: list[float | None]
    advantages: list[float | None]
    best: str | None = None
    worst: str | None = None
    bookmarked: bool = False
    superseded: bool = False  # a resume took its step back; only bookmarked ones are listed all the same


class Group(GroupData):
    """A group with its completions."""

    id: int
    run_id: int
    attempt: int
    step: int
    completions: list[CompletionRecord]
    bookmark: Bookmark | None = None


class TokenTrace(Record):
    """The tokens of one completion; every list is as long as `token_ids`, or None if it was not computed."""

    completion_id: int
    token_ids: list[int]
    texts: list[str]
    trained: list[bool] | None = None  # whether the loss counts it; None: it counts every token
    sampling_logprob: list[float | None] | None = None
    old_logprob: list[float | None] | None = None
    logprob: list[float | None] | None = None
    logprob_after: list[float | None] | None = None
    reference_logprob: list[float | None] | None = None
    entropy: list[float | None] | None = None
    ratio: list[float | None] | None = None
    clipped: list[bool] | None = None
    kl: list[float | None] | None = None
    advantage: list[float | None] | None = None  # one number throughout, but for a critic's
    value: list[float | None] | None = None  # what the critic expected before the token
    returns: list[float | None] | None = None  # what it should have expected


class StepSummary(Record):
    """How many groups of a step are in which state."""

    step: int
    states: dict[str, int]
