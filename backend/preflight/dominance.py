"""What takes most of a run's memory and of a step's time, and what would lower it."""

from collections.abc import Mapping

from backend.contract.config import RunConfig
from backend.contract.grpo import GrpoConfig
from backend.contract.sample import SampleConfig

MEMORY_NAMES = {
    "weights": "the weights",
    "copies": "copies of the weights for matrix products and for sampling",
    "gradients": "the gradients",
    "optimizer": "the optimizer's two moments",
    "reference": "the reference's own weights",
    "logits": "the logits, a chunk at a time",
    "activations": "the activations that the backward pass needs",
    "cache": "the keys and values of what is being sampled",
}
TIME_NAMES = {
    "rollout": "sampling",
    "reward": "scoring",
    "reference": "the reference pass",
    "update": "the update",
    "report": "reporting",
    "rest": "the rest",
}


def largest(parts: Mapping[str, float]) -> str:
    """The part that takes most."""
    return max(parts, key=lambda part: parts[part])


def memory_in_words(parts: Mapping[str, int], config: RunConfig) -> str:
    """What dominates the memory and what lowers it, in a sentence or two."""
    return _in_words(parts, MEMORY_NAMES, memory_remedy(largest(parts), config))


def time_in_words(parts: Mapping[str, float], config: RunConfig) -> str:
    """What dominates a step and what shortens it, in a sentence or two."""
    return _in_words(parts, TIME_NAMES, _time_remedy(largest(parts), config))


def memory_remedy(part: str, config: RunConfig) -> str:
    """What lowers a part of the memory, as far as this configuration has not done it yet."""
    adapters = config.model.lora is None and not isinstance(config, SampleConfig)
    match part:
        case "weights" | "copies":
            return "A smaller model needs less."
        case "gradients" | "optimizer":
            return "Adapters (model.lora) need them for a small share of the weights." if adapters else ""
        case "reference":
            kept_out = isinstance(config, GrpoConfig) and config.algorithm.kl.beta > 0
            free = "β = 0 (algorithm.kl.beta) needs no reference; adapters" if kept_out else "Adapters"
            return f"{free} (model.lora) share the policy's weights with it."
        case "activations" if not config.model.gradient_checkpointing:
            return "model.gradient_checkpointing keeps few of them, smaller optimizer.micro_batch_tokens fewer."
        case "activations" | "logits":
            return "Smaller micro-batches (optimizer.micro_batch_tokens) need less."
        case "cache":
            return "Fewer prompts or completions at once need less, and so do fewer new tokens."
    return ""


def _time_remedy(part: str, config: RunConfig) -> str:
    updates = config.algorithm.updates_per_batch if isinstance(config, GrpoConfig) else 1
    match part:
        case "rollout":
            return "Shorter completions (sampling.max_new_tokens) or fewer of them are sampled faster."
        case "reward":
            return "A faster reward function, or a judge with shorter replies, lowers it."
        case "reference":
            return "β = 0 (algorithm.kl.beta) needs no reference."
        case "update" if updates > 1:
            return f"It passes {updates} times over each batch (algorithm.updates_per_batch)."
        case "update":
            return (
                "It passes over every token three times, forward and backward: fewer or shorter completions lower it."
            )
    return ""


def _in_words(parts: Mapping[str, float], names: Mapping[str, str], remedy: str) -> str:
    part = largest(parts)
    share = parts[part] / sum(parts.values())
    return f"The largest share, {share:.0%}, goes to {names.get(part, part)}. {remedy}".strip()
