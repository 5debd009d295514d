"""The configuration of a run that another trainer trains: its own as it is, and what of it is known in this program's terms."""

from typing import Annotated, Literal

from pydantic import Field

from backend.contract.advantage import Advantage
from backend.contract.base import CleanText, Count, Frozen, Json, ShortText
from backend.contract.surrogate import Surrogate


class Trainer(Frozen):
    """What trains the run."""

    name: Annotated[ShortText, Field(min_length=1)]
    version: ShortText = ""


class RecordedModel(Frozen):
    """The policy's name, as the trainer has it."""

    source: Annotated[CleanText, Field(max_length=300)] = ""


class RecordedSampling(Frozen):
    """How completions are drawn, as far as it is known."""

    group_size: Count | None = None
    prompts_per_step: Count | None = None
    max_new_tokens: Count | None = None
    temperature: float | None = None
    top_p: float | None = None


class RecordedReward(Frozen):
    """A reward by its name; the trainer has its function. `weight` is None if it is not known."""

    kind: Literal["recorded"] = "recorded"
    name: ShortText
    weight: float | None = None


class RecordedRewards(Frozen):
    """The rewards, in the trainer's order."""

    functions: Annotated[list[RecordedReward], Field(max_length=64)] = []


class RecordedKl(Frozen):
    """The weight of the KL penalty."""

    beta: float = 0.0


class RecordedAlgorithm(Frozen):
    """How rewards become advantages and these a loss; None where the trainer's own way is not one of ours, or not known."""

    advantage: Advantage | None = None
    surrogate: Surrogate | None = None
    kl: RecordedKl | None = None
    updates_per_batch: Count | None = None


class RecordedBudget(Frozen):
    """How long it is meant to train; None: it has not said."""

    steps: Count | None = None


class RecordedConfig(Frozen):
    """Everything but `trainer` and `theirs` stands where a run of our own has it, so that pages read both alike; nothing is guessed."""

    kind: Literal["recorded"] = "recorded"
    trainer: Trainer
    theirs: dict[str, Json] = {}
    model: RecordedModel = RecordedModel()
    sampling: RecordedSampling = RecordedSampling()
    rewards: RecordedRewards = RecordedRewards()
    algorithm: RecordedAlgorithm = RecordedAlgorithm()
    budget: RecordedBudget = RecordedBudget()
