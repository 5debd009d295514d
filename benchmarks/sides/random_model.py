"""A model with random weights, to time steps without a download: python -m sides.random_model FOLDER [--toy]."""

import argparse
from pathlib import Path

import torch
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from worker.policy.sources import TINY_ARITHMETIC, resolve

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


def main() -> None:
    """Write the model, and the tiny model's tokenizer: what the text says does not matter."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--toy", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    sizes = TOY_SIZES if arguments.toy else SIZES
    model = Qwen2ForCausalLM(Qwen2Config(**sizes, tie_word_embeddings=True, max_position_embeddings=4096))
    model.save_pretrained(arguments.folder)
    tiny = resolve(TINY_ARITHMETIC, converted=arguments.folder, root=None, checkpoint=None)
    AutoTokenizer.from_pretrained(tiny.location).save_pretrained(arguments.folder)


if __name__ == "__main__":
    main()
