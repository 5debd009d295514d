"""A model with random weights, to time steps without a download."""

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

# The sizes of Qwen2.5-0.5B.
SIZES = {
    "vocab_size": 151_936,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
}
TOY_SIZES = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}


def random_model(family: str = "qwen2", *, toy: bool, **changed: int) -> PreTrainedModel:
    """Random weights of Qwen2.5-0.5B's shape or of a toy's, or of one that differs from it in some sizes."""
    torch.manual_seed(0)
    sizes = (TOY_SIZES if toy else SIZES) | changed
    config = AutoConfig.for_model(family, **sizes, tie_word_embeddings=True, max_position_embeddings=4096)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    return model
