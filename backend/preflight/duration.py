"""How long a run will take: from similar steps that were measured; without any, from its operations at a known machine's speed.

Counted sampling reaches the token limit, so that estimate is high if completions end early.
"""

import re
from collections.abc import Mapping
from statistics import median
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
NAMES = PHASES | {"rest": "the rest"}


class Speed(NamedTuple):
    """Of one CPU thread: operations a second while sampling and while passing whole sequences, and the cost of a layer's call."""

    sampling: float
    passing: float
    layer_seconds: float


# Measured with benchmarks/side_by_side.py on an AMD EPYC, two threads (docs/benchmarks.md): SmolLM2's phases by their operations.
THREAD = Speed(sampling=100e9, passing=160e9, layer_seconds=2e-4)
MEASURED_ON = "AMD EPYC"


def time_estimate(config: TrainingConfig, facts: Facts) -> TimeEstimate | None:
    """From measured steps; of a GRPO run without any, counted for the roomiest worker. None if neither is known."""
    if facts.step_times:
        return _measured(facts.step_times, config)
    shape, worker = facts.shape_of(config.model.source), facts.roomiest or next(iter(facts.workers), None)
    if shape is None or worker is None or not isinstance(config, GrpoConfig):
        return None
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
    return TimeEstimate(
        seconds_per_step=seconds,
        total_seconds=seconds * config.budget.steps + due * (known or 0.0),
        basis=f"measured here over {count} similar step{'s' if count > 1 else ''}{' of another task' if times.other_task else ''} on {times.device}{beside}",
        with_evaluations=not due or known is not None,
        parts=parts,
        advice=_advice(parts, config) if parts else "",
    )


def evaluations(steps: int, every: int) -> int:
    """How many evaluations a run makes: before the first step, after each `every` steps, and after the last; none if `every` is 0."""
    return 1 + -(-steps // every) if every else 0


def _counted(config: GrpoConfig, shape: ModelShape, device: str, facts: Facts) -> TimeEstimate | None:
    """From the operations of a step, at the speed of a run that was measured there if there is one; None if the device's speed is not known."""
    parts = _step_seconds(config, shape, device)
    if parts is None:
        return None
    slower = _times_slower(facts, device)
    at = f"an {MEASURED_ON}, of which a slower or busy machine may take several times as long"
    if slower is not None and facts.timed is not None:
        parts = {phase: value * slower for phase, value in parts.items()}
        at = f"run {facts.timed.id} on {device}"
    seconds = sum(parts.values())
    return TimeEstimate(
        seconds_per_step=seconds,
        total_seconds=seconds * config.budget.steps,
        basis=f"not measured yet: computed from the model's shape at the speed of {at}, as if every completion reached its token limit; "
        "scoring and evaluations are not counted",
        measured=False,
        with_evaluations=False,
        parts=parts,
        advice=_advice(parts, config),
    )


def _times_slower(facts: Facts, device: str) -> float | None:
    """How many times as long as counted the steps of a run took on the device; None if none was measured there."""
    run = facts.timed
    shape = facts.shape_named(run.origin) if run is not None else None
    if run is None or shape is None or run.device != device:
        return None
    counted = _step_seconds(run.config, shape, device)
    return median(run.seconds) / sum(counted.values()) if counted is not None else None


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
    """Seconds of a step by phase; None unless it is a CPU, and one process: nothing else's speed was measured.

    Scoring is left out: nobody knows what a reward function takes.
    """
    found = re.fullmatch(r"CPU, (\d+) threads", device)
    if found is None or config.compute.processes > 1:
        return None
    threads, sampling, algorithm = int(found[1]), config.sampling, config.algorithm
    forward = _forward(config, shape)
    looks_back = isinstance(algorithm.advantage, Gae) or (algorithm.kl.placement == "reward" and algorithm.kl.beta > 0)
    passes = algorithm.needs_reference + looks_back
    update = 1 + BACKWARD + config.model.gradient_checkpointing
    calls = sampling.max_new_tokens * shape.layers * THREAD.layer_seconds
    return {
        "rollout": forward / (threads * THREAD.sampling) + calls,
        "reference": passes * forward / (threads * THREAD.passing),
        "update": algorithm.updates_per_batch * update * forward / (threads * THREAD.passing),
    }


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
