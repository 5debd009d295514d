"""What a configuration needs of the worker that takes it and of other runs, whatever its kind; kept beside the configuration."""

import dataclasses
import json
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from sqlalchemy import ColumnElement, func, select

from backend.contract.base import Json
from backend.contract.model import checkpoint_of
from backend.contract.records import Offers
from backend.contract.stored import rewards_in, text_at
from backend.storage.tables import run

ORIGIN = "origin"


@dataclass(frozen=True)
class Needs:
    """Judges and Python functions, with the fields that name them, the sampling engine, the runs whose checkpoints it loads, and
    how many processes train it."""

    judges: Mapping[str, str]
    functions: Mapping[str, str]
    engine: str
    runs: Sequence[int]
    processes: int = 1
    device: str = ""  # with `versions`, those that a replay must compute with; "": any
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def read(cls, kept: str) -> Self:
        """From the text that `written` made."""
        return cls(**json.loads(kept))

    def written(self) -> str:
        """As a run's row keeps it: a queue of large configurations is looked through without reading one."""
        return json.dumps(asdict(self), separators=(",", ":"))

    def met_by(self, worker: Offers, elsewhere: Container[str] = ()) -> bool:
        """Whether the worker has all, or may refuse at once: for a function that it passed over, and nobody has `elsewhere`."""
        refused = {name for name in worker.passed_over if name not in elsewhere}
        return (
            self.judges.keys() <= set(worker.judges)
            and self.functions.keys() <= worker.functions | refused
            and self.engine in worker.engines
            and self.processes <= worker.processes
            and self.computes_as(worker)
        )

    def computes_as(self, worker: Offers) -> bool:
        """Whether the worker rounds as the run did that is replayed; nothing else asks for that."""
        return not self.device or (self.device, dict(self.versions)) == (worker.device, worker.versions)


def needs_of(config: Mapping[str, Json]) -> Needs:
    """What a worker must have for the configuration."""
    named = list(rewards_in(config))
    sampling: Any = config.get("sampling") or {}
    compute: Any = config.get("compute") or {}
    loaded = {found[0] for _, source in sources_in(config) if (found := checkpoint_of(source))}
    replayed: Any = config.get("run")
    versions: Any = config.get("versions") or {}
    return Needs(
        judges={text_at(one, "endpoint"): f"{field}.endpoint" for field, one in named if "endpoint" in one},
        functions={text_at(one, "function"): f"{field}.function" for field, one in named if one["kind"] == "python"},
        engine=sampling.get("engine", "native"),
        processes=compute.get("processes", 1),
        runs=sorted(loaded | ({replayed} if replayed else set())),
        device=text_at(config, "device"),
        versions=versions,
    )


def loads_from(run_id: int) -> ColumnElement[bool]:
    """Whether a row of `run` loads a checkpoint of this run; an index has all that this looks at."""
    named = func.json_each(run.c.needs, "$.runs").table_valued("value", name="named")
    return select(1).select_from(named).where(named.c.value == run_id).exists()


def sources_in(config: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """The field and the source of the model, of what a replayed run began with, and then of each reward model."""
    model: Any = config["model"]
    yield "model.source", model["source"]
    if origin := text_at(config, ORIGIN):
        yield ORIGIN, origin
    for field, function in rewards_in(config):
        if function["kind"] == "reward_model":
            yield f"{field}.source", text_at(function, "source")
