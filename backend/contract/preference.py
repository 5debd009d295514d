"""Runs that train on preference pairs: a Bradley-Terry reward model, and DPO; and where the pairs come from."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from backend.contract.base import Frozen, Misfit
from backend.contract.model import Model
from backend.contract.reward import Rewards
from backend.contract.task import Arithmetic, Column, Rows, Task, require_held_out
from backend.contract.training import MICRO_BATCH, Decoding, Keep, Optimizer, Recipe, Seed

Prompts = Annotated[int, Field(ge=1, le=100_000)]
Interval = Annotated[int, Field(ge=0, le=1_000_000)]


class SampledPairs(Frozen):
    """Groups sampled from the run's own model before training and scored: the best of each against its worst."""

    kind: Literal["sampled"] = "sampled"
    task: Task = Field(default_factory=Arithmetic, description="The task that supplies the prompts.")
    rewards: Rewards = Field(
        default_factory=Rewards, description="What decides which completion of a group is the better one."
    )
    prompts: Prompts = Field(
        1000, description="Prompts to sample a group for; one whose rewards are all equal gives no pair."
    )
    held_out_prompts: Prompts = Field(
        300, description="Held-out prompts to sample a group for; their pairs are never trained on."
    )
    group_size: Annotated[int, Field(ge=2, le=1024)] = Field(8, description="Completions of each prompt.")
    decoding: Decoding = Field(default_factory=Decoding, description="How the completions are drawn.")

    @model_validator(mode="after")
    def _can_be_compared(self) -> "SampledPairs":
        self.rewards.require_answers(self.task)
        return self


class DatasetPairs(Rows):
    """Your own pairs: an uploaded JSONL file, or a data set of the Hub (the datasets library loads it)."""

    kind: Literal["dataset"] = "dataset"
    chosen_column: Column = Field(
        "chosen", description="The column with the preferred answer: a text, or a chat that ends with it."
    )
    rejected_column: Column = Field("rejected", description="The column with the other answer, in the same form.")
    held_out: Annotated[float, Field(ge=0, le=0.5)] = Field(
        0.1, description="Share of the prompts kept for evaluation."
    )


Pairs = Annotated[SampledPairs | DatasetPairs, Field(discriminator="kind")]


class PairBudget(Frozen):
    """How long to train, when to evaluate and when to save."""

    steps: Annotated[int, Field(ge=1, le=1_000_000)] = Field(100, description="Each step is one update on some pairs.")
    pairs_per_step: Annotated[int, Field(ge=1, le=8192)] = Field(
        16, description="Pairs in one update; all of them are seen before any is seen again."
    )
    eval_every: Interval = Field(
        25,
        description="Steps between evaluations on held-out pairs, which also run before the first step and at the end; 0 turns all of them off.",
    )
    checkpoint_every: Interval = Field(
        50,
        description="Steps between saved checkpoints; the last step is always saved. A crash costs at most the steps since the last one. 0 saves at the end only.",
    )
    keep: Keep = Field(default_factory=Keep, description="Which of the checkpoints stay.")
    seed: Seed = Field(0, description="Same seed, same pairs, and the same next step from the same checkpoint on CPU.")


class DpoBudget(PairBudget):
    """How long to train, when to evaluate and to save, and how the policy itself is examined."""

    eval_items: Annotated[int, Field(ge=1, le=100_000)] = Field(
        500, description="Held-out prompts that the policy answers in one evaluation; only if the pairs are sampled."
    )
    eval_samples: Annotated[int, Field(ge=1, le=256)] = Field(
        1, description="Sampled completions of each: pass@1 is their mean."
    )


class RewardModelConfig(Frozen):
    """A run that trains a Bradley-Terry reward model: the preferred completion of a pair should score higher."""

    schema_version: Literal[1] = 1
    kind: Literal["reward_model"] = "reward_model"
    recipe: Recipe = None
    model: Model = Field(default_factory=Model, description="Its weights go under a new head with one output.")
    pairs: Pairs = Field(default_factory=SampledPairs, description="Where the preference pairs come from.")
    optimizer: Optimizer = Field(default_factory=Optimizer)
    budget: PairBudget = Field(default_factory=PairBudget)

    @model_validator(mode="after")
    def _fits_together(self) -> "RewardModelConfig":
        _check(self.pairs, self.optimizer, self.budget)
        return self


class DpoConfig(Frozen):
    """A run that trains a policy on preference pairs directly (DPO), without a reward model between them."""

    schema_version: Literal[1] = 1
    kind: Literal["dpo"] = "dpo"
    recipe: Recipe = None
    model: Model = Field(default_factory=Model)
    pairs: Pairs = Field(default_factory=SampledPairs, description="Where the preference pairs come from.")
    beta: Annotated[float, Field(gt=0, le=100)] = Field(
        0.1, description="β: how strongly the policy is held to its initial weights; with a small β it can move far."
    )
    optimizer: Optimizer = Field(default_factory=Optimizer)
    budget: DpoBudget = Field(default_factory=DpoBudget)

    @model_validator(mode="after")
    def _fits_together(self) -> "DpoConfig":
        _check(self.pairs, self.optimizer, self.budget)
        return self


def _check(pairs: SampledPairs | DatasetPairs, optimizer: Optimizer, budget: PairBudget) -> None:
    """The rules that both kinds share. Raises Misfit."""
    optimizer.require_time(budget.steps)
    if pairs.kind == "sampled" and optimizer.micro_batch_tokens <= 2 * pairs.decoding.max_new_tokens:
        text = (
            f"a micro-batch of {optimizer.micro_batch_tokens} tokens cannot hold both completions of a pair, of up to "
            f"{pairs.decoding.max_new_tokens} tokens each, and the prompt; raise micro_batch_tokens"
        )
        raise Misfit(text, MICRO_BATCH, {MICRO_BATCH: 8 * pairs.decoding.max_new_tokens})
    if not budget.eval_every:
        return
    if pairs.kind == "sampled" and pairs.task.kind == "single_prompt":
        text = (
            f"evaluation every {budget.eval_every} steps needs pairs of other prompts, and single_prompt has one prompt; choose "
            "another task or set eval_every to 0"
        )
        raise Misfit(text, "pairs.task", {"budget.eval_every": 0})
    source, path = (pairs.task, "pairs.task.held_out") if pairs.kind == "sampled" else (pairs, "pairs.held_out")
    if source.kind == "dataset":
        require_held_out(source.held_out, path, budget.eval_every)
