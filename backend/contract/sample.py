"""A run that samples groups from a model or a checkpoint, and trains on nothing."""

from typing import Annotated, Literal

from pydantic import Field

from backend.contract.base import CleanText, Frozen
from backend.contract.model import Model
from backend.contract.reward import Rewards
from backend.contract.training import Decoding, Seed


class SampleConfig(Frozen):
    """One group for each of a few prompts, scored where rewards are given, and not trained on: try a model or checkpoint."""

    schema_version: Literal[1] = 1
    kind: Literal["sample"] = "sample"
    model: Model = Field(default_factory=Model)
    prompts: Annotated[
        list[Annotated[CleanText, Field(min_length=1, max_length=20_000)]], Field(min_length=1, max_length=16)
    ]
    answer: Annotated[CleanText, Field(max_length=20_000)] | None = Field(
        None, description="The reference answer, for correctness."
    )
    system_prompt: Annotated[CleanText, Field(max_length=20_000)] | None = None
    prompt_format: Literal["chat", "raw"] = "chat"
    group_size: Annotated[int, Field(ge=1, le=64)] = Field(8, description="Completions of each prompt.")
    decoding: Decoding = Field(default_factory=Decoding)
    rewards: Rewards | None = Field(None, description="Scores the completions; none shows them as they are.")
    seed: Seed = 0
