"""Log-probabilities from chunks of the vocabulary projection: the same numbers, and rows × vocabulary never in memory."""

import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from transformers import LlamaConfig, LlamaForCausalLM
from worker_models import CPU, tiny_policy

from worker.policy import device, vocabulary
from worker.policy.device import Abilities
from worker.policy.logprobs import TokenBatch
from worker.policy.policy import Policy
from worker.policy.vocabulary import Output, TokenStatistics, chunk_rows, token_statistics

TOKENS, HIDDEN, WORDS = 37, 12, 50


def plainly(
    hidden: Tensor, output: Output, ids: Tensor, *, temperature: float, support_M_K: Tensor | None
) -> TokenStatistics:
    """By torch, all at once."""
    logits = (hidden @ output.weight_V_H.t() + (0 if output.bias_V is None else output.bias_V)) / temperature
    logprobs = logits.log_softmax(-1)
    chosen = logprobs.gather(-1, ids[:, None])[:, 0]
    entropy = -(logprobs.exp() * logprobs).sum(-1)
    if support_M_K is None:
        return TokenStatistics(chosen, entropy, chosen)
    rows = zip(logprobs, support_M_K, strict=True)
    among = torch.stack([row[inside[inside >= 0]].logsumexp(-1) for row, inside in rows])
    return TokenStatistics(chosen, entropy, chosen - among)


@pytest.mark.parametrize("kept", [0, 4 * TOKENS * WORDS], ids=["computed again", "kept"])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("with_support", [True, False])
def test_chunks_change_neither_value_nor_gradient(
    monkeypatch: pytest.MonkeyPatch, with_bias: bool, with_support: bool, kept: int
) -> None:
    monkeypatch.setitem(device._ABILITIES, "cpu", Abilities(logits_bytes=16 * 4 * WORDS, kept_logits_bytes=kept))
    monkeypatch.setattr(vocabulary, "_TABLE_ROWS", 7)
    torch.manual_seed(0)
    ids = torch.randint(WORDS, (TOKENS,))
    support = torch.full((TOKENS, 5), -1)
    for row in range(TOKENS):
        others = torch.randperm(WORDS)[: row % 5]
        support[row, : len(others)] = others
    support[:, 4] = ids
    found = []
    among = support if with_support else None
    for compute in (token_statistics, plainly):
        torch.manual_seed(1)
        hidden = torch.randn(TOKENS, HIDDEN, dtype=torch.float64, requires_grad=True)
        weight = torch.randn(WORDS, HIDDEN, dtype=torch.float64, requires_grad=True)
        bias = torch.randn(WORDS, dtype=torch.float64, requires_grad=True) if with_bias else None
        for _ in range(2):  # the second gradient is added to the first
            statistics = compute(hidden, Output(weight, bias), ids, temperature=0.7, support_M_K=among)
            each = torch.arange(TOKENS).double()
            loss = sum(factor * (each @ one) for factor, one in enumerate(statistics, 1))
            loss.backward()  # type: ignore[no-untyped-call]
        found.append([*statistics, hidden.grad, weight.grad, *([] if bias is None else [bias.grad])])
    for mine, plain in zip(*found, strict=True):
        assert mine is not None
        assert plain is not None
        assert torch.allclose(mine, plain, rtol=1e-9, atol=1e-9)


def peak_of_an_update(words: int, tokens: int) -> int:
    """Bytes that forward and backward hold at once, beside the weights and their gradients, by torch's profiler."""
    config = LlamaConfig(
        vocab_size=words, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2
    )
    torch.manual_seed(0)
    policy = Policy(LlamaForCausalLM(config), tiny_policy(reference=False).tokenizer, CPU, "float32")
    prompts = [[1, 2, 3]] * 8
    batch = TokenBatch.of(prompts, [[5 + row] * tokens for row in range(8)], CPU)
    policy.logprobs(batch.longest(1, 8), temperature=1.0)  # the check of the first pass is not what is measured
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as measured:
        policy.logprobs(batch, temperature=1.0).logprob_R_T.sum().backward()
    held = peak = 0
    for event in sorted(measured.profiler.kineto_results.events(), key=lambda event: event.start_ns()):  # type: ignore[union-attr]
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    assert policy.packs
    gradients = sum(parameter.numel() * 4 for parameter in policy.parameters())
    assert peak > gradients
    return peak - gradients


@pytest.mark.slow
@pytest.mark.parametrize(
    "tokens", [25, pytest.param(200, marks=pytest.mark.thorough)]
)  # of each of 8 completions: less than a chunk, and many
def test_memory_grows_with_the_vocabulary_by_three_chunks_of_logits_at_most(tokens: int) -> None:
    small, large = 20_000, 60_000
    grown = peak_of_an_update(large, tokens) - peak_of_an_update(small, tokens)
    assert grown <= 3 * chunk_rows(large, CPU) * (large - small) * 4
