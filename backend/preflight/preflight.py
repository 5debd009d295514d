"""Preflight: from a configuration, right or wrong, and what is known, to what a person should see before starting."""

from collections.abc import Mapping

from pydantic import ValidationError

from backend.catalog.models import SHAPES, ModelShape
from backend.contract.base import Json
from backend.contract.config import RUN_CONFIG, RunConfig, TrainingConfig
from backend.contract.grpo import GrpoConfig
from backend.contract.model import Lora
from backend.contract.preference import DpoConfig, RewardModelConfig, SampledPairs
from backend.contract.preflight import MemoryEstimate, Message, Preflight, TimeEstimate
from backend.contract.sample import SampleConfig
from backend.contract.training import GIB
from backend.preflight.dominance import MEMORY_NAMES, largest, memory_in_words, memory_remedy
from backend.preflight.errors import error_messages
from backend.preflight.facts import Facts
from backend.preflight.forecast import counted_time, dead_groups, measured_time
from backend.preflight.hints import FOR_EVERY_KIND, grpo_hints
from backend.preflight.intended import of_the_recipe
from backend.preflight.memory import Computing, pair_parts, sampling_parts, training_parts
from backend.preflight.pairs import hints, training_pairs


def parse(config: Mapping[str, Json]) -> RunConfig | Preflight:
    """The configuration; where it is wrong, the answer that says so, with one message per field."""
    try:
        return RUN_CONFIG.validate_python(config)
    except ValidationError as error:
        return Preflight(ok=False, messages=error_messages(error, config))


def preflight(config: RunConfig, facts: Facts) -> Preflight:
    """What a valid configuration would do."""
    if isinstance(config, GrpoConfig):
        return _of_training(config, facts)
    return _of_sample(config, facts) if isinstance(config, SampleConfig) else _of_pairs(config, facts)


def _of_training(config: GrpoConfig, facts: Facts) -> Preflight:
    shape = SHAPES.get(facts.origin or config.model.source)
    parts = training_parts(config, shape, _computing(config.model.dtype, facts)) if shape else None
    memory = _memory(parts, config, facts)
    messages = [*facts.refused, *of_the_recipe(grpo_hints(config, facts), config), *_memory_messages(memory, config)]
    success = facts.success
    completions = config.sampling.completions_per_step
    return Preflight(
        ok=not any(message.level == "error" for message in messages),
        messages=messages,
        completions_per_step=completions,
        total_completions=completions * config.budget.steps,
        memory=memory,
        time=_time(config, shape, facts),
        success_rate=success.rate if success else None,
        success_basis=success.basis if success else None,
        dead_groups=list(dead_groups(success.rate, config.sampling.group_size)) if success else [],
    )


def _of_pairs(config: RewardModelConfig | DpoConfig, facts: Facts) -> Preflight:
    shape = SHAPES.get(facts.origin or config.model.source)
    parts = pair_parts(config, shape, _computing(config.model.dtype, facts)) if shape else None
    memory = _memory(parts, config, facts)
    sampled, pairs = config.pairs if isinstance(config.pairs, SampledPairs) else None, training_pairs(config, facts)
    success = facts.success if sampled else None
    messages = [*facts.refused, *(message for rule in FOR_EVERY_KIND for message in rule(config, facts))]
    messages += [*hints(config, facts, pairs), *_memory_messages(memory, config)]
    return Preflight(
        ok=not any(message.level == "error" for message in messages),
        messages=messages,
        training_pairs=pairs,
        trained_pairs=config.budget.steps * config.budget.pairs_per_step,
        memory=memory,
        time=measured_time(facts.step_times, config) if facts.step_times else None,
        success_rate=success.rate if success else None,
        success_basis=success.basis if success else None,
        dead_groups=list(dead_groups(success.rate, sampled.group_size)) if sampled and success else [],
    )


def _of_sample(config: SampleConfig, facts: Facts) -> Preflight:
    shape = SHAPES.get(facts.origin or config.model.source)
    parts = sampling_parts(config, shape, _computing(config.model.dtype, facts)) if shape else None
    completions = config.prompt_count * config.group_size
    return Preflight(
        ok=not facts.refused,
        messages=list(facts.refused),
        completions_per_step=completions,
        total_completions=completions,
        memory=_memory(parts, config, facts),
    )


def _computing(dtype: str, facts: Facts) -> Computing:
    """What the roomiest worker does. On a GPU `auto` counts as half precision: workers do not report whether theirs supports it."""
    on_gpu = facts.roomiest is not None and not facts.roomiest.on_cpu
    return Computing(on_gpu, in_half=dtype == "bfloat16" or (dtype == "auto" and on_gpu))


def _time(config: GrpoConfig, shape: ModelShape | None, facts: Facts) -> TimeEstimate | None:
    """From steps that were measured, else counted for the roomiest worker."""
    worker = facts.roomiest or next(iter(facts.workers), None)
    if facts.step_times:
        return measured_time(facts.step_times, config)
    return counted_time(config, shape, worker.device) if shape and worker else None


def _memory(parts: dict[str, int] | None, config: RunConfig, facts: Facts) -> MemoryEstimate | None:
    if parts is None:
        return None
    available = facts.roomiest.memory_bytes if facts.roomiest else None
    return MemoryEstimate(
        total_bytes=sum(parts.values()),
        available_bytes=available,
        parts=parts,
        advice=memory_in_words(parts, config),
    )


def _memory_messages(memory: MemoryEstimate | None, config: TrainingConfig) -> list[Message]:
    """Nothing where it fits; else what is missing, and what to do about the largest part."""
    if memory is None:
        text = "the shape of this model is not known here: no memory estimate"
        return [Message(level="info", field="model.source", text=text)]
    if memory.available_bytes is None or memory.total_bytes <= memory.available_bytes:
        return []
    part = largest(memory.parts)
    field, fix = _smaller(part, config)
    text = (
        f"about {memory.total_bytes / GIB:.1f} GiB are needed and the largest worker has {memory.available_bytes / GIB:.1f}; "
        f"the largest part is {MEMORY_NAMES.get(part, part)} ({memory.parts[part] / GIB:.1f} GiB). {memory_remedy(part, config)}"
    )
    return [Message(level="warning", field=field, text=text.strip(), fix=fix)]


def _smaller(part: str, config: TrainingConfig) -> tuple[str, dict[str, Json] | None]:
    """The field that a part of the memory depends on most, and a value that needs less; None where there is none."""
    micro_batch = config.optimizer.micro_batch_tokens
    if part in ("logits", "activations") and micro_batch >= 64:
        return "optimizer.micro_batch_tokens", {"optimizer.micro_batch_tokens": micro_batch // 4}
    if part in ("gradients", "optimizer", "reference") and config.model.lora is None:
        return "model.lora", {"model.lora": Lora().model_dump(mode="json")}
    if part == "cache" and isinstance(config, GrpoConfig) and config.sampling.prompts_per_step > 1:
        return "sampling.prompts_per_step", {"sampling.prompts_per_step": config.sampling.prompts_per_step // 2}
    return "model.source", None
