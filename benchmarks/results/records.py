"""What was measured against TRL and against itself, and kept."""

from statistics import fmean, median

from pydantic import BaseModel
from sides.floor import Rates, Shape
from sides.messages import Ready, Step, Trace

from results.page import Kept


class Measured(BaseModel):
    """The steps of one side that count, in order."""

    versions: dict[str, str]
    threads: int
    omp_wait_policy: str
    seconds: list[float] = []
    lengths: list[list[int]] = []  # sampled tokens of each completion
    metrics: list[dict[str, float | None]] = []
    peak_memory: int = 0  # bytes
    attention: str = ""  # of the library that sampled

    @staticmethod
    def of(ready: Ready) -> "Measured":
        return Measured(versions=ready.versions, threads=ready.threads, omp_wait_policy=ready.omp_wait_policy)

    def add(self, step: Step) -> None:
        self.seconds.append(step.seconds)
        self.lengths.append(step.trained.lengths)
        kept = ("reward", "sampling_logprob_diff")
        known = step.trained.metrics.items()
        self.metrics.append({name: value for name, value in known if name in kept or name.startswith("time/")})
        self.attention = step.trained.attention
        self.peak_memory = max(self.peak_memory, step.trained.peak_memory or 0)

    @property
    def step(self) -> float:
        """Median seconds."""
        return median(self.seconds)

    @property
    def tokens(self) -> float:
        """Mean sampled tokens of a step."""
        return fmean(map(sum, self.lengths))

    @property
    def rewards(self) -> list[float]:
        """Of each step that had one."""
        return [value for one in self.metrics if (value := one["reward"]) is not None]


class FloorInputs(BaseModel):
    """What the floor of the steps is computed from."""

    shape: Shape
    prompts: list[list[int]]  # of each step: the lengths of its prompts
    rates: Rates
    value_bytes: int = 4  # of a number in the matrix products and in the cache


class Comparison(BaseModel):
    """Two sides that took turns on the same work."""

    about: str
    where: dict[str, str]
    first: Measured
    second: Measured
    floor: FloorInputs | None = None


class Alone(BaseModel):
    """One side by itself."""

    about: str
    where: dict[str, str]
    side: Measured


class Agreement(BaseModel):
    """How far two traces of the same step agree; differences are the largest ones, None if the tokens differ."""

    same_tokens: bool
    sampling: float | None = None
    training: float | None = None

    @staticmethod
    def of(left: Trace, right: Trace) -> "Agreement":
        """Of two steps from the same weights and the same seed."""
        if left.token_ids != right.token_ids:
            return Agreement(same_tokens=False)
        return Agreement(
            same_tokens=True,
            sampling=_largest_difference(left.sampling_logprob, right.sampling_logprob),
            training=_largest_difference(left.old_logprob, right.old_logprob),
        )


def _largest_difference(left: list[list[float]], right: list[list[float]]) -> float:
    rows = zip(left, right, strict=True)
    return max(abs(one - other) for row, line in rows for one, other in zip(row, line, strict=True))


class Pair(BaseModel):
    """The same seed with fast paths and without, and how far their first steps agree."""

    seed: int
    fast: Measured
    plain: Measured
    agreement: Agreement


class Learning(BaseModel):
    """Runs with fast paths and without, seed by seed."""

    about: str
    where: dict[str, str]
    pairs: list[Pair]


class OnGpu(Kept):
    """What is measured on one GPU: against TRL, and the sampling against transformers' continuous batching."""

    trl: Comparison | None = None
    batching: Comparison | None = None
    mixed: Comparison | None = None  # the same with completions of many lengths
    check: Pair | None = None  # of the tiny model's first step


class Results(Kept):
    """All sections; those that were not measured yet are None."""

    reference: Comparison | None = None
    long: Comparison | None = None
    quickstart: Comparison | None = None
    memory: Alone | None = None
    telemetry: Comparison | None = None
    learning: Learning | None = None
