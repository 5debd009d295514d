"""A run that samples groups from a model or a checkpoint, and trains on nothing."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from backend.contract.algorithm import Algorithm
from backend.contract.base import CleanText, Frozen, Json, Misfit
from backend.contract.model import Model
from backend.contract.reward import Rewards
from backend.contract.task import Task
from backend.contract.training import Decoding, Seed

MOST_PROMPTS = 2000
PROMPTS_PER_STEP = 16


class SampleConfig(Frozen):
    """One group for each of a few prompts, scored where rewards are given, and not trained on.

    The prompts are typed, to try a model or a checkpoint, or a task's, to see what a run would meet before it is launched.
    """

    schema_version: Literal[1] = 1
    kind: Literal["sample"] = "sample"
    model: Model = Field(default_factory=Model)
    prompts: Annotated[list[Annotated[CleanText, Field(min_length=1, max_length=20_000)]], Field(max_length=16)] = (
        Field(default_factory=list, description="Prompts that somebody typed; none if a task gives them.")
    )
    answer: Annotated[CleanText, Field(max_length=20_000)] | None = Field(
        None, description="The reference answer to typed prompts, for correctness."
    )
    system_prompt: Annotated[CleanText, Field(max_length=20_000)] | None = None
    prompt_format: Literal["chat", "raw"] = "chat"
    task: Task | None = Field(None, description="Gives the prompts: the first that a run would draw.")
    task_prompts: Annotated[int, Field(ge=1, le=MOST_PROMPTS)] = Field(
        4, description="Prompts drawn from the task, each once: fewer where it has fewer."
    )
    group_size: Annotated[int, Field(ge=1, le=64)] = Field(8, description="Completions of each prompt.")
    decoding: Decoding = Field(default_factory=Decoding)
    rewards: Rewards | None = Field(None, description="Scores the completions; none shows them as they are.")
    algorithm: Algorithm = Field(
        default_factory=Algorithm, description="Its estimator turns the rewards into advantages; nothing is updated."
    )
    seed: Seed = 0
    rescores: Annotated[int, Field(ge=1, le=2**63 - 1)] | None = Field(
        None,
        description="A finished sample: its completions are scored again, by these rewards, and nothing is sampled.",
    )
    launch: dict[str, Json] | None = Field(
        None,
        description="The form that this was sampled for, as it stood, right or wrong: a page that is loaded again has it.",
    )

    @model_validator(mode="after")
    def _has_prompts(self) -> "SampleConfig":
        if bool(self.prompts) == (self.task is not None):
            what = "both typed prompts and a task" if self.prompts else "neither a prompt nor a task"
            raise Misfit(f"a sample asks typed prompts or a task's, and here is {what}; give one of them", "prompts")
        if self.rescores is not None and self.rewards is None:
            raise Misfit("a sample is scored again by rewards, and here are none", "rewards")
        if self.task is not None and self.rewards is not None:
            self.rewards.require_answers(self.task)
        return self

    @property
    def steps(self) -> int:
        """In how many parts it is reported, so that it is seen to move."""
        return -(-self.prompt_count // PROMPTS_PER_STEP)

    @property
    def prompt_count(self) -> int:
        """How many groups there will be."""
        return self.task_prompts if self.task is not None else len(self.prompts)
