"""How long a run will take: from similar steps that were measured; without any, from its operations at the rate of another run on the same device.

Counted sampling reaches the token limit, so that estimate is high if completions end early. Where no model of known shape was timed on a device, nothing is said.
"""

import re
from collections.abc import Mapping
from statistics import median, quantiles
from typing import NamedTuple

from backend.contract.advantage import Gae
from backend.contract.config import TrainingConfig
from backend.contract.grpo import GrpoConfig
from backend.contract.model_shape import ModelShape
from backend.contract.preflight import TimeEstimate
from backend.contract.records import PHASES
from backend.preflight.facts import Facts, StepTimes
from backend.preflight.memory import largest, largest_share, prompt_tokens

MULTIPLY_AND_ADD = 2  # operations for each weight and token
BACKWARD = 2  # a backward pass, in forward passes
FEWEST_STEPS = 10  # whose range says something
NAMES = PHASES | {"rest": "the rest"}


class Speed(NamedTuple):
    """Of one CPU thread: operations a second while sampling and while passing whole sequences, and the cost of a layer's call."""

    sampling: float
    passing: float
    layer_seconds: float


# How the phases of a step compare, measured with benchmarks/side_by_side.py on an AMD EPYC, two threads (docs/benchmarks.md). How fast
# a device is, only a run on it says.
THREAD = Speed(sampling=100e9, passing=160e9, layer_seconds=2e-4)
OFF = 1.8
"""From the rate of one work to the seconds of another, at most: of the 12 pairs of the four works that docs/benchmarks.md times on one
machine, from the tiny model to 512 tokens of SmolLM2, the worst is off by 1.75."""


def time_estimate(config: TrainingConfig, facts: Facts) -> TimeEstimate | str:
    """From measured steps; of a GRPO run without any, counted at the rate of a run on the same device. If neither is known, why not."""
    if facts.step_times:
        return _measured(facts.step_times, config)
    shape, worker = facts.shape_of(config.model.source), facts.roomiest or next(iter(facts.workers), None)
    if not isinstance(config, GrpoConfig):
        return "no similar step was measured"
    if shape is None:
        return "no similar step was measured, and the model's shape is not known here"
    if worker is None:
        return "no similar step was measured, and no worker is up whose device would say more"
    return _counted(config, shape, worker.device, facts)


def _measured(times: StepTimes, config: TrainingConfig) -> TimeEstimate:
    """From the median of similar steps, and of evaluations if runs that evaluated alike are known."""
    seconds = median(times.seconds)
    count = len(times.seconds)
    due = evaluations(config.budget.steps, config.budget.eval_every)
    known = median(times.evaluations) if times.evaluations else None
    parts = {phase: median(values) for phase, values in times.phases.items() if values}
    if parts:
        parts["rest"] = max(0.0, seconds - sum(parts.values()))
    beside = ""
    if due and known is None:
        beside = ", evaluations not counted"
    elif due:
        beside = f"; {due} evaluation{'s' if due > 1 else ''} at {known:.1f} s each, as in similar runs; the total includes loading and checkpoints"
    # between which nine of ten steps lay
    cuts = quantiles(times.seconds, n=20, method="inclusive") if count >= FEWEST_STEPS else [None]
    return TimeEstimate(
        seconds_per_step=seconds,
        low_seconds=cuts[0],
        high_seconds=cuts[-1],
        total_seconds=seconds * config.budget.steps + due * (known or 0.0),
        basis=f"measured here over {count} similar step{'s' if count > 1 else ''}{' of another task' if times.other_task else ''} on {times.device}{beside}",
        with_evaluations=not due or known is not None,
        parts=parts,
        advice=_advice(parts, config) if parts else "",
    )


def evaluations(steps: int, every: int) -> int:
    """How many evaluations a run makes: before the first step, after each `every` steps, and after the last; none if `every` is 0."""
    return 1 + -(-steps // every) if every else 0


def _counted(config: GrpoConfig, shape: ModelShape, device: str, facts: Facts) -> TimeEstimate | str:
    """From the operations of a step, at the rate of a run that was timed on the device with as many processes; else why not."""
    processes, parts = config.compute.processes, _step_seconds(config, shape, device)
    if parts is None:
        return f"no similar step was measured, and on {device} the steps of other models do not say how long this one's take: try a few"
    run, known = next(
        (
            (one, counted)
            for one in facts.timed
            if (one.device, one.config.compute.processes) == (device, processes)
            if (counted := facts.shape_named(one.origin)) is not None
        ),
        (None, None),
    )
    if run is None or known is None:
        by = f" by {processes} processes" if processes > 1 else ""
        return f"no model of known shape was timed on {device}{by} yet: a few steps of one there give its rate"
    taken = median(run.seconds)
    slower = taken / sum((_step_seconds(run.config, known, device) or parts).values())
    parts = {phase: value * slower for phase, value in parts.items()}
    seconds = sum(parts.values())
    rate = (1 + sum(_passes(run.config))) * _forward(run.config, known) / taken / 1e9  # sampling included
    return TimeEstimate(
        seconds_per_step=seconds,
        low_seconds=seconds / OFF,
        high_seconds=seconds * OFF,
        total_seconds=seconds * config.budget.steps,
        basis=f"not measured yet: computed from the model's shape at the rate of run {run.id} on {device} "
        f"({rate:,.3g} billion operations a second), as if every completion reached its token limit. One work's rate was off by up to "
        f"{OFF} times for another, hence the range; scoring and evaluations are not counted",
        measured=False,
        with_evaluations=False,
        parts=parts,
        advice=_advice(parts, config),
    )


def _advice(parts: Mapping[str, float], config: TrainingConfig) -> str:
    """What dominates a step and what shortens it."""
    updates = config.algorithm.updates_per_batch if isinstance(config, GrpoConfig) else 1
    whole = "The update runs forward and backward over every token: fewer or shorter completions shorten it."
    again = f"It passes {updates} times over each batch (algorithm.updates_per_batch)."
    remedies = {
        "rollout": "Shorter completions (sampling.max_new_tokens) or fewer of them are sampled faster.",
        "reward": "A faster reward function, or a judge with shorter replies, lowers it.",
        "reference": "β = 0 (algorithm.kl.beta) needs no reference.",
        "update": again if updates > 1 else whole,
    }
    return largest_share(parts, NAMES, remedies.get(largest(parts), ""))


def _step_seconds(config: GrpoConfig, shape: ModelShape, device: str) -> dict[str, float] | None:
    """Seconds of a step by phase on the machine that the phases were compared on, in one process; None unless it is a CPU.

    Scoring is left out: nobody knows what a reward function takes.
    """
    found = re.fullmatch(r"CPU, (\d+) threads", device)
    if found is None:
        return None
    threads, sampling = int(found[1]), config.sampling
    forward, passes = _forward(config, shape), _passes(config)
    calls = sampling.max_new_tokens * shape.layers * THREAD.layer_seconds
    return {
        "rollout": forward / (threads * THREAD.sampling) + calls,
        "reference": passes.reference * forward / (threads * THREAD.passing),
        "update": passes.update * forward / (threads * THREAD.passing),
    }


class _Passes(NamedTuple):
    """What a step computes beside sampling, in forward passes over its tokens."""

    reference: int
    update: int


def _passes(config: GrpoConfig) -> _Passes:
    algorithm = config.algorithm
    looks_back = isinstance(algorithm.advantage, Gae) or (algorithm.kl.placement == "reward" and algorithm.kl.beta > 0)
    update = 1 + BACKWARD + config.model.gradient_checkpointing
    return _Passes(algorithm.needs_reference + looks_back, algorithm.updates_per_batch * update)


def _forward(config: GrpoConfig, shape: ModelShape) -> float:
    """Operations of one forward pass over a step's tokens: each prompt once for its group, logits of the completions alone."""
    sampling = config.sampling
    prompt = prompt_tokens(config.task)
    sampled = sampling.completions_per_step * sampling.max_new_tokens
    prompts = sampling.prompts_per_step * prompt
    matrices = (sampled + prompts) * shape.blocks + sampled * shape.head
    seen = prompt + sampling.max_new_tokens / 2  # keys that a sampled token looks at, on average
    attention = sampled * seen * 2 * shape.layers * shape.heads * shape.head_dim
    return MULTIPLY_AND_ADD * (matrices + attention)
