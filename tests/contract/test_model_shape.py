"""A model's dimensions from its config.json, as the Hub has it."""

import pytest

from backend.contract.base import Json
from backend.contract.model_shape import shape_in

LLAMA_1B: dict[str, Json] = {  # Llama-3.2-1B
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 128_256,
    "max_position_embeddings": 131_072,
    "tie_word_embeddings": True,
    "rope_scaling": {"factor": 32.0, "rope_type": "llama3"},
}


def changed(**values: Json) -> dict[str, Json]:
    """Without those that are None."""
    return {name: value for name, value in (LLAMA_1B | values).items() if value is not None}


def test_a_config_json_gives_the_published_number_of_parameters() -> None:
    assert shape_in(LLAMA_1B).parameters == 1_235_814_400
    sizes: dict[str, Json] = {
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "vocab_size": 151_936,
    }
    heads: dict[str, Json] = {"num_attention_heads": 14, "num_key_value_heads": 2, "head_dim": None}
    assert shape_in(changed(model_type="qwen2", **sizes, **heads)).parameters == 494_032_768 - 24 * (
        896 + 2 * 128
    )  # Qwen2.5-0.5B, but for its biases


def test_what_is_left_out_is_what_the_architecture_takes_for_it_and_an_unknown_one_is_counted_as_llamas() -> None:
    assert shape_in(changed(model_type="phi3")) == shape_in(LLAMA_1B)
    assert not shape_in(changed(tie_word_embeddings=None)).tied
    assert shape_in(changed(num_key_value_heads=None)).kv_heads == 32
    assert shape_in(changed(head_dim=None)).head_dim == 64
    gemma = shape_in(
        {"model_type": "gemma3_text", "hidden_size": 1152, "intermediate_size": 6912, "num_hidden_layers": 26}
    )
    assert (gemma.hidden, gemma.layers, gemma.intermediate, gemma.tied) == (1152, 26, 6912, True)
    assert (gemma.heads, gemma.kv_heads, gemma.head_dim) == (8, 4, 256)
    assert (gemma.vocabulary, gemma.context) == (262_208, 131_072)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({}, "it has no model_type"),
        ({"model_type": None}, "it has no model_type"),
        (changed(model_type="mixtral", num_local_experts=8), "mixtral has experts (num_local_experts)"),
        ({"model_type": "gemma3", "text_config": LLAMA_1B}, "gemma3 has other parts than a language model"),
        (changed(model_type="gpt2", hidden_size=None), "gpt2 has other layers than Llama's, .* lacks hidden_size"),
        (changed(num_hidden_layers="many"), "llama: layers cannot be 'many'"),
        (changed(hidden_size=0), "llama: hidden cannot be 0"),
        (changed(vocab_size=10**12), "llama: vocabulary cannot be 1000000000000"),
        (changed(hidden_size=[1], head_dim=None), "llama: hidden cannot be"),
    ],
)
def test_what_cannot_be_counted_is_refused_with_the_reason(config: dict[str, Json], why: str) -> None:
    with pytest.raises(ValueError, match=why.replace("(", r"\(").replace(")", r"\)")):
        shape_in(config)
