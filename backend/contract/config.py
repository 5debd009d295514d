"""The configuration of a run: one frozen, closed, bounded model per kind. The form, the command line and the docs are read from it."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from backend.contract.base import Frozen
from backend.contract.grpo import GrpoConfig
from backend.contract.preference import DatasetPairs, DpoConfig, RewardModelConfig
from backend.contract.replay import ReplayConfig
from backend.contract.sample import SampleConfig
from backend.contract.task import Dataset

Kind = Literal["grpo", "reward_model", "dpo", "sample", "replay"]
LOOKS = frozenset({"sample", "replay"})
"""The kinds that train nothing: they look at what others trained."""
RECORDED = "recorded"
"""The kind of a run that another program trains (`recorded.py`): no form makes one, and no worker takes it."""
TrainingConfig = GrpoConfig | RewardModelConfig | DpoConfig
LookConfig = SampleConfig | ReplayConfig
RunConfig = Annotated[TrainingConfig | LookConfig, Field(discriminator="kind")]
MODELS: Mapping[Kind, type[Frozen]] = {
    "grpo": GrpoConfig,
    "reward_model": RewardModelConfig,
    "dpo": DpoConfig,
    "sample": SampleConfig,
    "replay": ReplayConfig,
}
RUN_CONFIG: TypeAdapter[TrainingConfig | LookConfig] = TypeAdapter(RunConfig)


def data_of(config: TrainingConfig | LookConfig) -> tuple[str, Dataset | DatasetPairs] | None:
    """The person's own rows that a run reads, and the path at which they are described."""
    if isinstance(config, ReplayConfig):
        return None
    if isinstance(config, GrpoConfig | SampleConfig):
        return ("task", config.task) if isinstance(config.task, Dataset) else None
    if isinstance(config.pairs, DatasetPairs):
        return "pairs", config.pairs
    return ("pairs.task", config.pairs.task) if isinstance(config.pairs.task, Dataset) else None
