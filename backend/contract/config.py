"""The configuration of a run: one frozen, closed, bounded model per kind. Its JSON Schema drives form, command line and docs."""

from typing import Annotated

from pydantic import Field, TypeAdapter

from backend.contract.grpo import GrpoConfig
from backend.contract.sample import SampleConfig

RunConfig = Annotated[GrpoConfig | SampleConfig, Field(discriminator="kind")]
RUN_CONFIG: TypeAdapter[GrpoConfig | SampleConfig] = TypeAdapter(RunConfig)
