"""Which models cannot be trained here, by their configuration: it is said before one is chosen, and before one is loaded."""

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from safetensors import SafetensorError, safe_open
from transformers import AutoModelForCausalLM, PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

_RECURRENT = frozenset({"conv", "hybrid", "hybrid_sliding", "linear_attention", "mamba", "recurrent"})
"""Kinds of layers (`layer_types`) that keep a state in place of keys and values."""


def why_untrainable(config: PreTrainedConfig) -> str | None:
    """Why a model of this configuration cannot be trained; None if it can. Raises what its own code raises."""
    text = config.get_text_config()
    quantized = getattr(config, "quantization_config", None) or getattr(text, "quantization_config", None)
    if quantized:
        by = quantized.get("quant_method") if isinstance(quantized, dict) else getattr(quantized, "quant_method", None)
        method = f" ({getattr(by, 'value', by)!s:.50})" if by else ""
        return (
            f"it is quantized{method}, and quantized weights cannot be trained; choose the model that it was made from"
        )
    decodes = any(getattr(config, name, False) for name in ("is_decoder", "is_encoder_decoder"))
    if config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not decodes:
        return "it reads what comes after a token, too (is_decoder in its config.json is false), and writes no text"
    kinds = getattr(text, "layer_types", None)
    classes = AutoModelForCausalLM._model_mapping  # of which each says whether its past is more than keys and values
    stateful = type(config) in classes and getattr(classes[type(config)], "_is_stateful", False)
    if stateful or (isinstance(kinds, list) and not _RECURRENT.isdisjoint(kinds)):
        return "it has recurrent layers, and only models whose layers are all of attention are sampled and trained here"
    return None


_NUMBERS = frozenset({"F16", "BF16", "F32", "F64"})
WEIGHTS, SHARDS = "model.safetensors", "model.safetensors.index.json"


def read_by_the_loader(folder: Path) -> set[str]:
    """The files that transformers takes the weights from: others may hold them once more, as `consolidated.safetensors` does.

    Raises ValueError.
    """
    if (folder / WEIGHTS).is_file():
        return {WEIGHTS}
    if not (folder / SHARDS).is_file():
        return set()
    try:
        return {str(shard) for shard in json.loads((folder / SHARDS).read_text())["weight_map"].values()}
    except (OSError, ValueError, LookupError, AttributeError, TypeError, RecursionError):
        raise ValueError(f"its {SHARDS} cannot be read; copy it again") from None


def why_no_numbers(folder: Path) -> str | None:
    """Why the weights of a folder cannot be trained, by the headers of its files: one is stored as integers, or in eight bits.

    Raises ValueError if the index of its files cannot be read.
    """
    return stored_oddly(folder / name for name in read_by_the_loader(folder))


def stored_oddly(files: Iterable[Path]) -> str | None:
    """What is wrong with the numbers in files of weights; None if nothing is."""
    odd = set[str]()
    for file in files:
        with suppress(OSError, SafetensorError), safe_open(file, "np") as tensors:
            for key in tensors.keys():  # noqa: SIM118 — no mapping
                part = tensors.get_slice(key)
                # masks and positions are integers in sound models, too
                if key.endswith("weight") and len(part.get_shape()) > 1 and part.get_dtype() not in _NUMBERS:
                    odd.add(part.get_dtype())
    if not odd:
        return None
    return f"weights of it are stored as {', '.join(sorted(odd))}, as quantized ones are, and those cannot be trained"
