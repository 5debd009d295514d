"""How much memory a run needs, by part, for models whose shape is known.

An estimate from the shapes alone: it leaves out what a GPU's driver takes for itself, and it adds parts that are not all alive at the
same moment.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from backend.contract.base import Json
from backend.contract.config import TrainingConfig
from backend.contract.grpo import GrpoConfig
from backend.contract.model import Lora, Model
from backend.contract.model_shape import ModelShape
from backend.contract.preference import DpoConfig, RewardModelConfig, SampledPairs
from backend.contract.preflight import MemoryEstimate, Message
from backend.contract.records import Offers
from backend.contract.sample import SampleConfig
from backend.contract.task import Prompted
from backend.contract.training import ADAMW_STATES, FLOAT32, GIB, Decoding
from backend.preflight.facts import Facts, Given

# The worker projects onto the vocabulary in chunks of at most this many bytes, on a CPU and on a GPU. `worker.policy.vocabulary` has the
# same numbers; a test compares them.
CHUNK_BYTES = (48 * 2**20, 2**30)
KEPT_LOGITS_BYTES = (192 * 2**20, 0)  # of a pass whose logits are kept for its gradient
ACTIVATION_BYTES = 3 * 2**29  # of a training pass on a CPU, at most; `worker.policy.policy`
CACHE_BYTES = 2**30  # keys and values on a CPU, at most; `worker.policy.device`
# What a worker's process on a CPU holds beside arrays, and each process that it starts: 410 MiB before a model is loaded, the rest with it.
LIBRARIES_BYTES = 480 * 2**20
# Beside activations, keys and values: such a process keeps what it frees for the next step, and finds not all of it again in one piece.
KEPT_SHARE = 0.3
PIECES = 6  # of a process on a CPU with its weights in shards: times all weights, found with one model (benchmarks/estimates.py)
PROMPT_TOKENS = 64  # assumed, since the task's prompts are not read: a question in a chat template
LETTERS = 3  # in a token, about
NAMES = {
    "libraries": "Python and PyTorch themselves",
    "kept": "freed arrays that the process keeps for the next step",
    "weights": "the weights",
    "copies": "copies of the weights for matrix products and for sampling",
    "gradients": "the gradients",
    "gathered": "the layer that computes, gathered from all processes, with its gradient",
    "optimizer": "the optimizer's two moments",
    "reference": "the reference's own weights",
    "logits": "the logits, a chunk at a time",
    "activations": "the activations that the backward pass needs",
    "cache": "the keys and values of what is being sampled",
}


@dataclass(frozen=True)
class Computing:
    """How a worker computes."""

    on_gpu: bool
    in_half: bool  # matrix products are in half precision, beside float32 weights


def prompt_tokens(task: Prompted | None) -> int:
    """About how long a prompt is: a question, after the system prompt if there is one."""
    system = task.system_prompt if task is not None else None
    return PROMPT_TOKENS + len(system or "") // LETTERS


def memory_estimate(config: TrainingConfig | SampleConfig, facts: Facts) -> MemoryEstimate | None:
    """What the run needs on the roomiest worker; None for a model whose shape is not known here."""
    shape, worker = facts.shape_of(config.model.source), facts.roomiest
    if shape is None:
        return None
    parts = needed(config, shape, worker)
    total, count = sum(parts.values()), config.compute.processes if isinstance(config, GrpoConfig) else 1
    on_gpu = worker is not None and not worker.on_cpu
    return MemoryEstimate(
        total_bytes=total,
        available_bytes=worker.memory_bytes if worker else None,
        processes=count,
        each_bytes=None if count == 1 else total if on_gpu else total // count,
        parts=parts,
        advice=largest_share(parts, NAMES, _remedy(largest(parts), config)),
    )


def needed(config: TrainingConfig | SampleConfig, shape: ModelShape, worker: Offers | None) -> dict[str, int]:
    """Bytes by part of a run on a model of this shape; without a worker, on a CPU."""
    on_gpu = worker is not None and not worker.on_cpu
    # On a GPU `auto` counts as half precision: workers do not report whether theirs supports it.
    dtype = config.model.dtype
    computing = Computing(on_gpu, in_half=dtype == "bfloat16" or (dtype == "auto" and on_gpu))
    if isinstance(config, GrpoConfig):
        parts, processes = training_parts(config, shape, computing), config.compute.processes
    elif isinstance(config, SampleConfig):
        parts, processes = sampling_parts(config, shape, computing), 1
    else:
        parts, processes = pair_parts(config, shape, computing), 1
    if not on_gpu:  # the worker leads several processes, and is one more then
        parts["kept"] = round(KEPT_SHARE * (parts.get("activations", 0) + parts.get("cache", 0)))
        parts["libraries"] = LIBRARIES_BYTES * (processes + (processes > 1))
    return parts


def memory_hints(memory: MemoryEstimate | None, config: TrainingConfig, given: Given | None) -> Iterator[Message]:
    """What the estimate rests on, if not on what is known here; if it does not fit, what is missing, and what to do about the largest part."""
    if given is not None:
        level: Literal["info", "warning"] = "warning" if given.shape is None else "info"
        yield Message(level=level, field="model.source", text=given.text)
    elif memory is None:
        text = "the shape of this model is not known here: no memory estimate, unless you give its config.json"
        yield Message(level="info", field="model.source", text=text)
    if memory is None:
        return
    if memory.available_bytes is not None and memory.total_bytes > memory.available_bytes:
        part = largest(memory.parts)
        field, fix = _smaller(part, config)
        text = (
            f"about {memory.total_bytes / GIB:.1f} GiB are needed and the largest worker has {memory.available_bytes / GIB:.1f}; "
            f"the largest part is {NAMES.get(part, part)} ({memory.parts[part] / GIB:.1f} GiB). {_remedy(part, config)}"
        )
        yield Message(level="warning", field=field, text=text.strip(), fix=fix)


def largest_share(parts: Mapping[str, float], names: Mapping[str, str], remedy: str) -> str:
    """What takes most, how much of the whole that is, and what would lower it, in a sentence or two."""
    part = largest(parts)
    share = parts[part] / sum(parts.values())
    return f"The largest share, {share:.0%}, goes to {names.get(part, part)}. {remedy}".strip()


def largest(parts: Mapping[str, float]) -> str:
    """The part that takes most."""
    return max(parts, key=lambda part: parts[part])


def _remedy(part: str, config: TrainingConfig | SampleConfig) -> str:
    """What lowers a part of the memory, as far as this configuration has not done it yet."""
    match part:
        case "weights" | "copies":
            return "A smaller model needs less."
        case "gradients" | "optimizer" if config.model.lora is None and not isinstance(config, SampleConfig):
            return "Adapters (model.lora) need them for a small share of the weights."
        case "reference":
            removable = isinstance(config, GrpoConfig) and config.algorithm.kl.beta > 0
            free = "β = 0 (algorithm.kl.beta) needs no reference; adapters" if removable else "Adapters"
            return f"{free} (model.lora) share the policy's weights with it."
        case "activations" if not config.model.gradient_checkpointing:
            return "model.gradient_checkpointing keeps fewer of them, and so do smaller micro-batches (optimizer.micro_batch_tokens)."
        case "activations" | "logits":
            return "Smaller micro-batches (optimizer.micro_batch_tokens) need less."
        case "cache":
            return "Fewer prompts or completions at once need less, and so do fewer new tokens."
    return ""


def _smaller(part: str, config: TrainingConfig) -> tuple[str, dict[str, Json] | None]:
    """The field that a part of the memory depends on most, and a value that needs less; None if there is none."""
    micro_batch = config.optimizer.micro_batch_tokens
    if part in ("logits", "activations") and micro_batch >= 64:
        return "optimizer.micro_batch_tokens", {"optimizer.micro_batch_tokens": micro_batch // 4}
    if part in ("gradients", "optimizer", "reference") and config.model.lora is None:
        return "model.lora", {"model.lora": Lora().model_dump(mode="json")}
    if part == "cache" and isinstance(config, GrpoConfig) and config.sampling.prompts_per_step > 1:
        return "sampling.prompts_per_step", {"sampling.prompts_per_step": config.sampling.prompts_per_step // 2}
    return "model.source", None


def training_parts(config: GrpoConfig, shape: ModelShape, computing: Computing) -> dict[str, int]:
    """Bytes by part of a GRPO run: on GPUs those on each card, on a CPU those of all processes."""
    trained = trained_parameters(config.model, shape)
    initial = config.algorithm.kl.reference == "initial"  # with adapters that is the same weights without them
    keeps_copy = config.algorithm.needs_reference and not (initial and config.model.lora)
    sampling, compute = config.sampling, config.compute
    # A prompt passes once for its group, and logits are computed for the completions alone.
    completed = sampling.group_size * sampling.max_new_tokens
    group = prompt_tokens(config.task) + completed
    prompts = -(-sampling.prompts_per_step // compute.processes)
    tokens = min(config.optimizer.micro_batch_tokens, prompts * group)
    in_shards = {
        "weights": _weights(config.model, shape),
        "gradients": FLOAT32 * trained,
        "optimizer": FLOAT32 * ADAMW_STATES * trained,
        "reference": FLOAT32 * trained if keeps_copy else 0,
    }
    of_each = {
        **{part: held // compute.parts for part, held in in_shards.items()},
        "copies": _copies(shape, computing, samples=compute.parts == 1),
        "gathered": 0 if compute.parts == 1 else _gathered(shape, computing),
        "logits": _logits(shape, round(tokens * completed / group), computing),
        "activations": _activations(tokens, shape, config.model, computing),
        "cache": _cache(shape, config.task, sampling, prompts * sampling.group_size, computing),
    }
    return of_each if computing.on_gpu else {part: compute.processes * held for part, held in of_each.items()}


def pair_parts(config: RewardModelConfig | DpoConfig, shape: ModelShape, computing: Computing) -> dict[str, int]:
    """Bytes by part: both completions of a pair pass through the model together."""
    trained = trained_parameters(config.model, shape)
    dpo, pairs = isinstance(config, DpoConfig), config.pairs
    tokens = config.optimizer.micro_batch_tokens
    if isinstance(pairs, SampledPairs):
        longest = 2 * (prompt_tokens(pairs.task) + pairs.decoding.max_new_tokens)
        tokens = min(tokens, config.budget.pairs_per_step * longest)
    return {
        "weights": _weights(config.model, shape),
        "copies": _copies(shape, computing, samples=dpo and config.budget.eval_every > 0),
        "gradients": FLOAT32 * trained,
        "optimizer": FLOAT32 * ADAMW_STATES * trained,
        "reference": FLOAT32 * shape.parameters if dpo and config.model.lora is None else 0,
        "logits": _logits(shape, tokens, computing) if dpo else 0,
        "activations": _activations(tokens, shape, config.model, computing)
        if dpo
        else tokens * _activations_per_token(shape, config.model, computing),
    }


def sampling_parts(config: SampleConfig, shape: ModelShape, computing: Computing) -> dict[str, int]:
    """Bytes by part: nothing is trained."""
    rows = config.prompt_count * config.group_size
    return {
        "weights": _weights(config.model, shape),
        "copies": _copies(shape, computing, trains=False),
        "logits": FLOAT32 * 2 * rows * shape.vocabulary,
        "cache": _cache(shape, config.task, config.decoding, rows, computing),
    }


def trained_parameters(model: Model, shape: ModelShape) -> int:
    """Of the whole model, or of its adapters."""
    return shape.parameters if model.lora is None else _adapter_parameters(model.lora, shape)


def _adapter_parameters(lora: Lora, shape: ModelShape) -> int:
    return shape.layers * lora.rank * sum(sum(shape.linear[name]) for name in _adapted(lora, shape))


def _adapted(lora: Lora, shape: ModelShape) -> set[str]:
    """The linear layers of a block that have adapters."""
    return set(shape.linear) & set(shape.linear if lora.target_modules == "all-linear" else lora.target_modules)


def _weights(model: Model, shape: ModelShape) -> int:
    adapters = 0 if model.lora is None else _adapter_parameters(model.lora, shape)
    return FLOAT32 * (shape.parameters + adapters)


def _gathered(shape: ModelShape, computing: Computing) -> int:
    """The layer that computes, the embedding and the output layer, with their gradients.

    A CPU keeps more, in pieces: the weights as they were loaded and as they were first gathered, and at a checkpoint those and the moments whole.
    """
    if not computing.on_gpu:
        return PIECES * FLOAT32 * shape.parameters
    tables = shape.vocabulary * shape.hidden * (1 if shape.tied else 2)
    return 2 * FLOAT32 * (tables + (shape.parameters - tables) // shape.layers)


def _copies(shape: ModelShape, computing: Computing, *, trains: bool = True, samples: bool = True) -> int:
    """Of the weights: in half precision for the gradient; and laid out for sampling.

    On a CPU these are dropped for the update, and its gradients may lie in their place; of adapters it has hardly any.
    """
    # The product after the gate keeps none: its gradient makes one again.
    kept = shape.layers * sum(rows * columns for name, (rows, columns) in shape.linear.items() if name != "down_proj")
    for_gradient = 2 * kept if trains and computing.in_half else 0
    size = 2 if computing.in_half else FLOAT32
    return for_gradient + (size * (shape.blocks + shape.head) if samples else 0)


def _logits(shape: ModelShape, rows: int, computing: Computing) -> int:
    """A chunk and its exponentials, and all of few. On a CPU the backward pass has a thread, and so a heap, of its own."""
    heaps, whole = 1 if computing.on_gpu else 2, FLOAT32 * shape.vocabulary * rows
    kept = whole if whole <= KEPT_LOGITS_BYTES[computing.on_gpu] else 0
    return 2 * heaps * min(whole, CHUNK_BYTES[computing.on_gpu]) + kept


def _activations(tokens: int, shape: ModelShape, model: Model, computing: Computing) -> int:
    whole = tokens * _activations_per_token(shape, model, computing)
    return whole if computing.on_gpu else min(whole, ACTIVATION_BYTES)


def _activations_per_token(shape: ModelShape, model: Model, computing: Computing) -> int:
    """What the backward pass needs of one token: of every block, or of one block and every block's input; and of the last norm.

    As autograd's saved-tensor hooks count it.
    """
    trained = set(shape.linear) if model.lora is None else _adapted(model.lora, shape)
    # Around the attention (queries, keys, values, output), and in the gated layer (gate and up).
    wide = 2 * (shape.heads + shape.kv_heads) * shape.head_dim + 2 * shape.intermediate
    # Only a layer that is trained needs its input: a copy of its own in half precision; beside adapters the norm's output,
    # which they share; else it is computed again from the stream.
    readers = [trained & {"q_proj", "k_proj", "v_proj"}, trained & {"gate_proj", "up_proj"}]
    shared = model.lora is not None
    wide += shape.hidden * sum(len(names) if computing.in_half else shared and bool(names) for names in readers)
    if model.lora is not None:
        wide += model.lora.rank * len(trained)  # between the two matrices of each adapter
        wide += 2 * shape.intermediate * ("down_proj" in trained)  # the opened gate, and what the adapter reads
    stream = FLOAT32 * 2 * shape.hidden  # before both norms
    block = stream + (2 if computing.in_half else FLOAT32) * wide
    if model.gradient_checkpointing:
        return block + shape.layers * shape.hidden * FLOAT32 + stream
    return shape.layers * block + stream


def _cache(shape: ModelShape, task: Prompted | None, decoding: Decoding, rows: int, computing: Computing) -> int:
    """Keys and values of every token that is being generated at once."""
    tokens = rows * (prompt_tokens(task) + decoding.max_new_tokens)
    size = 2 if computing.in_half else FLOAT32
    whole = tokens * shape.layers * 2 * shape.kv_heads * shape.head_dim * size
    return whole if computing.on_gpu else min(whole, CACHE_BYTES)
