"""How many processes train a run, and how its weights lie in them."""

from typing import Annotated

from pydantic import Field, model_validator

from backend.contract.base import Frozen, Misfit


class Compute(Frozen):
    """Processes of one worker that train a run together, each on a GPU of its own where there are some."""

    processes: Annotated[int, Field(ge=1, le=1024)] = Field(
        1,
        description="Each samples, scores and trains its share of the groups. The same seed trains the same, however many there are.",
    )
    shards: Annotated[int, Field(ge=0, le=1024)] = Field(
        0,
        description="Parts into which weights, gradients and optimizer state are divided; 0: as many as processes. With 1 each process "
        "has all of them, which is faster where they fit.",
    )

    @property
    def parts(self) -> int:
        """The parts, whether they were named or not."""
        return self.shards or self.processes

    @model_validator(mode="after")
    def _divides(self) -> "Compute":
        if self.processes % self.parts:
            processes = "1 process" if self.processes == 1 else f"{self.processes} processes"
            text = f"{processes} cannot hold {self.shards} shards equally often; use a divisor of {self.processes}"
            raise Misfit(text, "shards", {"shards": 0})
        return self
