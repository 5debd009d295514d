"""What the shipped files of `builtin:tiny-arithmetic` promise to the task, the trainer and the person who looks."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerFast

import worker.models
from worker.tasks.arithmetic import is_held_out, problems, read_by_precedence, read_left_to_right

MODEL = Path(worker.models.__path__[0]) / "tiny_arithmetic"


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return AutoTokenizer.from_pretrained(MODEL)


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    return AutoModelForCausalLM.from_pretrained(MODEL)


def test_the_model_is_small_enough_to_ship() -> None:
    assert sum(file.stat().st_size for file in MODEL.iterdir()) <= 8 * 2**20


@given(text=st.text())
def test_any_text_comes_back_exactly(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_the_tokenizer_renders_and_ends_what_the_model_was_trained_on(
    tokenizer: PreTrainedTokenizerFast, model: LlamaForCausalLM
) -> None:
    text = read_by_precedence("9 - 2 x 6").text
    token_ids = tokenizer.encode(text)
    assert tokenizer.decode(token_ids, skip_special_tokens=True) == text
    assert len(token_ids) <= 25
    end, padding = tokenizer.eos_token_id, tokenizer.pad_token_id
    assert None not in (end, padding)
    assert end != padding
    assert (model.generation_config.eos_token_id, model.generation_config.pad_token_id) == (end, padding)
    messages = [{"role": "user", "content": "Calculate 2 + 2 x 6"}]
    prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert prompt == "<user>Calculate 2 + 2 x 6<assistant>"
    with_system = tokenizer.apply_chat_template([{"role": "system", "content": "Be brief."}, *messages], tokenize=False)
    assert with_system == "<system>Be brief.<user>Calculate 2 + 2 x 6"


@pytest.mark.slow
@pytest.mark.thorough
def test_sampling_held_out_problems_gives_about_half_right_and_hardly_anything_but_the_two_procedures(
    tokenizer: PreTrainedTokenizerFast, model: LlamaForCausalLM
) -> None:
    torch.manual_seed(0)
    pool = problems(operands=3, low=1, high=9, operators=("+", "-", "x"), precedence=True)
    expressions = [problem.expression for problem in pool if is_held_out(problem.expression)][:500]
    prompts = [f"<user>Calculate {expression}<assistant>" for expression in expressions]
    inputs = tokenizer(prompts, return_tensors="pt", padding=True, return_token_type_ids=False)
    sampled = model.generate(**inputs)[:, inputs.input_ids.shape[1] :]
    completions = tokenizer.batch_decode(sampled, skip_special_tokens=True)
    right, wrong = (
        sum(completion == read(asked).text for completion, asked in zip(completions, expressions, strict=True))
        for read in (read_by_precedence, read_left_to_right)
    )
    assert 0.42 <= right / len(expressions) <= 0.58
    assert right + wrong >= 0.95 * len(expressions)
    assert (sampled == tokenizer.eos_token_id).any(dim=1).float().mean() >= 0.99
