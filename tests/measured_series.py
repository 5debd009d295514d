"""Metrics of long runs as a worker would report them, for tests of what charts make of them."""

from collections.abc import Mapping, Sequence

import numpy as np
import recorded
from numpy.typing import NDArray
from serving import Backend

from backend.contract import protocol as p
from backend.contract.base import Json
from backend.telemetry import metrics

LENGTHS = (241, 2_000, 20_000)
KINDS = ("exponential", "log-normal", "binary")
Values = NDArray[np.float64]


def drawn(kind: str, steps: int, seed: int = 0) -> Values:
    """A metric with a skewed distribution: exponential as a KL, log-normal as a gradient norm, binary as one dead group in ten."""
    random = np.random.default_rng([KINDS.index(kind), steps, seed])
    if kind == "exponential":
        return random.exponential(0.02, steps)
    if kind == "log-normal":
        return random.lognormal(0.0, 0.8, steps)
    return (random.random(steps) < 0.1).astype(np.float64)


def by_step(series: Mapping[str, Values]) -> list[dict[str, float | None]]:
    """What each step reports of series that are all as long."""
    return [
        {name: float(value) for name, value in zip(series, values, strict=True)}
        for values in zip(*series.values(), strict=True)
    ]


def record(
    backend: Backend,
    steps: Sequence[Mapping[str, float | None]],
    name: str = "long",
    *,
    seed: int = 0,
    **overrides: Json,
) -> int:
    """A finished run with these metrics, from step 0 on; all but the last step's are stored in one transaction."""
    client = backend.client
    budget: dict[str, Json] = {"steps": len(steps), "seed": seed}
    run_id = recorded.queue(client, name, budget=budget, **overrides)
    attempt = recorded.claim(client, run_id).attempt
    with backend.services.database.write() as tx:
        metrics.store(tx, run_id, attempt, list(enumerate(steps[:-1])))
    client.report(run_id, p.Report(attempt=attempt, seq=0, step=len(steps) - 1, metrics=dict(steps[-1])))
    client.finish(run_id, p.Finish(attempt=attempt, outcome="finished"))
    return run_id
