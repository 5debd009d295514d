"""Train `builtin:tiny-arithmetic`, the small model that ships with Groupscope, and write its files.

    python scripts/train_tiny_arithmetic.py [--output DIR] [--steps N] [--seed N] [--threads N]

Supervised learning on worked solutions. Each time a problem is seen, a fair coin decides whether the solution shown is
the right procedure or the one that ignores precedence, so the trained model tosses that coin itself: about half of a
group of completions is right, which is what GRPO needs to start from. No held-out expression is ever shown.
"""

import argparse
import json
import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from worker.tasks.arithmetic import is_held_out, problems, read_by_precedence, read_left_to_right

OUTPUT = Path(__file__).parents[1] / "worker" / "models" / "tiny_arithmetic"
PAD, END, SYSTEM, USER, ASSISTANT = "<pad>", "<end>", "<system>", "<user>", "<assistant>"
PIECES = ("<think>", "</think>", "<answer>", "</answer>", "Calculate ", " + ", " - ", " x ", " = ", "; ")
CHAT_TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}"
    "{% if message.role == 'assistant' %}<end>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
IGNORED = -100  # the label that cross-entropy leaves out
LARGEST_RESULT = 200  # a solution that passes through a larger number is not taught: capacity goes to the common tables
ALL = ("+", "-", "x")
GROUP = 8  # completions of a problem when the model is measured


@dataclass(frozen=True)
class Family:
    """One kind of problem in the training mix, drawn with probability `share`."""

    share: float
    operands: int
    high: int
    precedence: bool


MIX = (
    Family(0.50, operands=3, high=9, precedence=True),
    Family(0.15, operands=3, high=9, precedence=False),
    Family(0.10, operands=3, high=20, precedence=False),
    Family(0.15, operands=4, high=9, precedence=False),
    Family(0.10, operands=2, high=20, precedence=False),
)


@dataclass(frozen=True)
class Example:
    """Token ids of a prompt, and of the two solutions that the coin chooses between (each ends with END)."""

    prompt: list[int]
    solutions: tuple[list[int], list[int]]


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Bytes, so that any text can be encoded and comes back exactly; whole tokens for what every problem repeats."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={symbol: number for number, symbol in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in (PAD, END, SYSTEM, USER, ASSISTANT)])
    backend.add_tokens([AddedToken(piece, normalized=False) for piece in PIECES])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[SYSTEM, USER, ASSISTANT],
        chat_template=CHAT_TEMPLATE,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=512,
    )


def build_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Random weights from torch's global generator, and the sampling defaults that go into the model's files."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        max_new_tokens=48,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return model


def prompt_text(expression: str) -> str:
    """What the chat template makes of the user message, ready for an answer."""
    return f"{USER}Calculate {expression}{ASSISTANT}"


def examples(family: Family, tokenizer: PreTrainedTokenizerFast) -> list[Example]:
    """What a family may teach: nothing held out, nothing that passes through a large number."""
    found = []
    for problem in problems(
        operands=family.operands, low=1, high=family.high, operators=ALL, precedence=family.precedence
    ):
        readings = read_by_precedence(problem.expression), read_left_to_right(problem.expression)
        largest = max(abs(result) for reading in readings for result in reading.results)
        if is_held_out(problem.expression) or largest > LARGEST_RESULT:
            continue
        right, wrong = (tokenizer.encode(reading.text + END) for reading in readings)
        prompt = tokenizer.encode(prompt_text(problem.expression))
        found.append(Example(prompt, (right, wrong)))
    return found


def batches(
    tokenizer: PreTrainedTokenizerFast, rng: random.Random, *, rows: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Endless (ids, labels), each (rows, T), padded on the right; labels cover the solution only."""
    pools = [examples(family, tokenizer) for family in MIX]
    shares = [family.share for family in MIX]
    while True:
        ids_B_T, labels_B_T = [], []
        for pool in rng.choices(pools, weights=shares, k=rows):
            example = rng.choice(pool)
            solution = rng.choice(example.solutions)
            ids_B_T.append(torch.tensor(example.prompt + solution))
            labels_B_T.append(torch.tensor([IGNORED] * len(example.prompt) + solution))
        pad = torch.nn.utils.rnn.pad_sequence
        yield (
            pad(ids_B_T, batch_first=True, padding_value=tokenizer.pad_token_id),
            pad(labels_B_T, batch_first=True, padding_value=IGNORED),
        )


def train(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    *,
    steps: int,
    rows: int,
    learning_rate: float,
    rng: random.Random,
) -> None:
    """AdamW with a short warm-up and a linear decay to zero, so that the last steps settle the probabilities."""
    warm_up = max(1, steps // 20)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm_up, (steps - step) / (steps - warm_up))
    )
    stream = batches(tokenizer, rng, rows=rows)
    model.train()
    started = time.monotonic()
    for step in range(1, steps + 1):
        ids, labels = next(stream)
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 0 or step == steps:
            print(f"step {step}/{steps}  loss {loss.item():.4f}  {time.monotonic() - started:.0f} s", flush=True)


def sample(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, prompts: list[str], *, seed: int) -> list[str]:
    """One completion of each prompt at temperature 1, with its END token if it came to one."""
    torch.manual_seed(seed)
    model.eval()
    inputs = tokenizer(prompts, return_tensors="pt", padding=True, return_token_type_ids=False)
    with torch.no_grad():
        output = model.generate(**inputs)[:, inputs.input_ids.shape[1] :]
    return [text.replace(PAD, "") for text in tokenizer.batch_decode(output, skip_special_tokens=False)]


def measure(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, *, group: int, seed: int) -> dict[str, float]:
    """Groups of completions of 500 held-out problems; every figure is a share between 0 and 1."""
    pool = problems(operands=3, low=1, high=9, operators=ALL, precedence=True)
    held_out = [problem.expression for problem in pool if is_held_out(problem.expression)][:500]
    expressions = [expression for expression in held_out for _ in range(group)]
    completions = sample(model, tokenizer, [prompt_text(expression) for expression in expressions], seed=seed)
    rights = [read_by_precedence(expression) for expression in expressions]
    wrongs = [read_left_to_right(expression) for expression in expressions]
    form = re.compile(rf"<think>[^<>]+</think><answer>-?\d+</answer>{END}")
    right = [completion == reading.text + END for completion, reading in zip(completions, rights, strict=True)]
    wrong = [completion == reading.text + END for completion, reading in zip(completions, wrongs, strict=True)]
    began_right = [
        completion.startswith(f"<think>{reading.steps[0].partition('=')[0]}")
        for completion, reading in zip(completions, rights, strict=True)
    ]
    per_group = [sum(right[start : start + group]) for start in range(0, len(right), group)]
    total = len(completions)
    return {
        "pass_at_1": sum(right) / total,
        "left_to_right": sum(wrong) / total,
        "right_once_begun_right": sum(right) / max(1, sum(began_right)),
        "well_formed": sum(form.fullmatch(completion) is not None for completion in completions) / total,
        "mixed_groups": sum(0 < count < group for count in per_group) / len(per_group),
    }


def model_card(figures: dict[str, float], *, parameters: int, steps: int, seed: int) -> str:
    """The README that lies beside the weights, with the figures of this very training."""
    return f"""# builtin:tiny-arithmetic

A Llama-architecture model of {parameters:,} parameters (4 layers, width 128, float32) that answers

    Calculate 2 + 2 x 6

with `<think>2 x 6 = 12; 2 + 12 = 14</think><answer>14</answer>`, or with the common mistake,
`<think>2 + 2 = 4; 4 x 6 = 24</think><answer>24</answer>`: it was taught both, on the toss of a coin, so that
reinforcement learning has something true to teach. It knows nothing else.

It was trained from random weights by `scripts/train_tiny_arithmetic.py` ({steps} steps, seed {seed}) on generated
problems of two to four operands; no data set was used. Expressions that
`worker.tasks.arithmetic.is_held_out` names were never shown.

## Measured

500 held-out problems of three operands (1 to 9; +, -, x; only those where precedence matters), {GROUP} completions
each, temperature 1:

| share of | |
|---|---|
| completions that are right (pass@1) | {figures["pass_at_1"]:.3f} |
| completions that are exactly the left-to-right mistake | {figures["left_to_right"]:.3f} |
| completions right, of those that began with the right operation | {figures["right_once_begun_right"]:.3f} |
| completions well formed and ended by the end token | {figures["well_formed"]:.4f} |
| groups of {GROUP} with both right and wrong completions | {figures["mixed_groups"]:.3f} |

Tokens: one for each byte, so that any text can be encoded; one for each tag, for `Calculate `, and for each operator,
`=` and `;` with its spaces. Prompts are `<user>…<assistant>`; a completion is about 21 tokens and ends with `<end>`.
"""


def main() -> None:
    """Train, measure, and write the model, its tokenizer and its card."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rows", type=int, default=128, help="solutions in a training step")
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    tokenizer = build_tokenizer()
    model = build_model(tokenizer)
    train(
        model,
        tokenizer,
        steps=options.steps,
        rows=options.rows,
        learning_rate=options.learning_rate,
        rng=random.Random(options.seed),
    )
    figures = measure(model, tokenizer, group=GROUP, seed=options.seed)
    print(json.dumps(figures, indent=1))
    model.save_pretrained(options.output)
    tokenizer.save_pretrained(options.output, save_jinja_files=False)
    card = model_card(figures, parameters=model.num_parameters(), steps=options.steps, seed=options.seed)
    (options.output / "README.md").write_text(card, encoding="utf-8")


if __name__ == "__main__":
    main()
