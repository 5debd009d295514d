"""What preflight knows beyond the configuration: the workers, the data, and what earlier runs measured."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from backend.catalog import SHAPES
from backend.contract.base import Json
from backend.contract.grpo import GrpoConfig
from backend.contract.model_shape import COUNTED, ModelShape, shape_in
from backend.contract.preflight import Message
from backend.contract.records import Offers
from backend.runs.needs import Needs


@dataclass(frozen=True)
class StepTimes:
    """Seconds of similar steps on one device; and, for each run that evaluated alike, the seconds beside its steps for each evaluation."""

    device: str
    seconds: Sequence[float]
    phases: Mapping[str, Sequence[float]] = field(default_factory=dict)
    evaluations: Sequence[float] = ()
    other_task: bool = False  # the runs asked other prompts


@dataclass(frozen=True)
class TimedRun:
    """A run of any model and any sizes whose steps were measured, in seconds, on a device: it says how fast that is."""

    id: int
    config: GrpoConfig
    origin: str  # the model that it began with
    device: str
    seconds: Sequence[float]


@dataclass(frozen=True)
class Success:
    """How often the model is right before training, 0 to 1, and what says so."""

    rate: float
    basis: str


@dataclass(frozen=True)
class Given:
    """A config.json that a person gave: the shape that it says, or why it says none; and what is to be known about the shape."""

    shape: ModelShape | None
    text: str

    @classmethod
    def read(cls, config: Mapping[str, Json]) -> "Given":
        """From its content."""
        try:
            shape = shape_in(config)
        except ValueError as error:
            return cls(None, f"nothing can be estimated from the given config.json: {error}")
        kind = config["model_type"]
        text = f"estimated from the given config.json: {kind}, {shape.parameters / 1e6:,.0f} million parameters"
        if kind not in COUNTED:
            text += f"; {kind} is counted as if its layers were Llama's, which nobody has checked"
        return cls(shape, text)


def roomiest(workers: Iterable[Offers]) -> Offers | None:
    """The worker with the most memory; None if none of them says how much it has."""
    known = [worker for worker in workers if worker.memory_bytes is not None]
    return max(known, key=lambda worker: worker.memory_bytes or 0, default=None)


@dataclass(frozen=True)
class Facts:
    """Nothing is known by default: a new installation."""

    workers: Sequence[Offers] = ()  # that are alive
    origin: str | None = None  # the model that a chain of run:<id>@<step> began with
    given: Given | None = None  # what a person gave for the model's config.json
    refused: Sequence[Message] = ()  # references of the configuration to what is not there
    needs: Needs | None = None  # of its worker; None: what the configuration says
    begins_at: int = 0  # of a fork: the steps of its trunk
    rate_before: float | None = None  # of a fork: the learning rate that its parent has at that step
    training_items: int | None = None
    source_items: Mapping[str, int] = field(default_factory=dict)  # of each source that has a share; empty: not counted
    columns: Sequence[str] | None = None  # of the upload that is read
    step_times: StepTimes | None = None
    timed: Sequence[TimedRun] = ()  # one for each device and number of processes
    success: Success | None = None
    disk_free: int | None = None  # bytes, where the workers' checkpoints and the traces lie; None: on another machine

    def shape_of(self, source: str) -> ModelShape | None:
        """The shape that was given for it; else that of the model that this source leads to, as it is known here or to a worker.

        None if nobody knows.
        """
        if self.given is not None:
            return self.given.shape
        return self.shape_named(self.origin or source)

    def shape_named(self, named: str) -> ModelShape | None:
        """The shape of a model by its name, which is no `run:<id>@<step>`."""
        offered = {one.source: one.shape for worker in self.workers for one in worker.models}
        # another revision of a model has the same shape, or next to never another
        return SHAPES.get(named) or offered.get(named) or offered.get(named.partition("@")[0])

    @property
    def roomiest(self) -> Offers | None:
        """The worker with the most memory; None if no worker says how much it has."""
        return roomiest(self.workers)
