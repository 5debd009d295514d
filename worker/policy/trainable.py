"""Which models cannot be trained here, by their configuration: it is said before one is chosen, and before one is loaded."""

from transformers import AutoModelForCausalLM, PreTrainedConfig

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
    kinds = getattr(text, "layer_types", None)
    if (isinstance(kinds, list) and not _RECURRENT.isdisjoint(kinds)) or _keeps_a_state(config):
        return "it has recurrent layers, and only models whose layers are all of attention are sampled and trained here"
    return None


def _keeps_a_state(config: PreTrainedConfig) -> bool:
    """Whether transformers' own class for it says that its past is more than keys and values."""
    kinds = AutoModelForCausalLM._model_mapping
    return type(config) in kinds and bool(getattr(kinds[type(config)], "_is_stateful", False))
