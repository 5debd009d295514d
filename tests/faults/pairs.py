"""A run of two processes, and what it came to."""

import hashlib
from typing import NamedTuple

from processes import Site, tiny_run

from backend.contract.records import Run, Series

STEPS, HELD = 6, 3


class Pair(NamedTuple):
    """What is the same bit for bit whatever happened meanwhile."""

    weights: str
    series: dict[str, Series]


def create(site: Site, steps: int = STEPS) -> Run:
    return site.client.create_run(tiny_run(steps, every=2, compute={"processes": 2}))


def trained(site: Site, run_id: int) -> Pair:
    (folder,) = site.home.glob(f"checkpoints/run-{run_id}/step-{STEPS}-*")
    weights = hashlib.sha256((folder / "model" / "model.safetensors").read_bytes()).hexdigest()
    return Pair(weights, site.client.metrics(run_id, names=["reward", "loss"]).series)
