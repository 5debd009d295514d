"""How long a step takes where none was measured: its operations, counted from the model's shape, at a known machine's speed.

Sampling is taken to reach the token limit, so the estimate is high where completions end early.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from backend.catalog.models import ModelShape
from backend.contract.advantage import Gae
from backend.contract.grpo import GrpoConfig
from backend.preflight.memory import prompt_tokens

MULTIPLY_AND_ADD = 2  # operations for each weight and token
BACKWARD = 2  # a backward pass, in forward passes


class Speed(NamedTuple):
    """Of one CPU thread: operations a second while sampling and while passing whole sequences, and the cost of a layer's call."""

    sampling: float
    passing: float
    layer_seconds: float


# Measured with benchmarks/side_by_side.py on an AMD EPYC, two threads (docs/benchmarks.md): SmolLM2's phases by their operations.
THREAD = Speed(sampling=100e9, passing=160e9, layer_seconds=2e-4)
MEASURED_ON = "AMD EPYC"


def step_seconds(config: GrpoConfig, shape: ModelShape, device: str) -> Mapping[str, float] | None:
    """Seconds of a step by phase; None for a device whose speed was never measured, which is any but a CPU.

    Scoring is left out: nobody knows what a reward function takes.
    """
    found = re.fullmatch(r"CPU, (\d+) threads", device)
    if found is None:
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
    head = shape.vocabulary * shape.hidden
    matrices = (sampled + prompts) * (shape.parameters - head) + sampled * head
    seen = prompt + sampling.max_new_tokens / 2  # keys that a sampled token looks at, on average
    attention = sampled * seen * 2 * shape.layers * shape.heads * shape.head_dim
    return MULTIPLY_AND_ADD * (matrices + attention)
