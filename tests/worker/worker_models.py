"""The tiny model, its task and a rollout: what the worker's tests look at."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from backend.contract.grpo import GrpoConfig
from backend.contract.model import Model
from backend.contract.task import Arithmetic
from backend.contract.training import Decoding
from worker.checkpoint import Trained
from worker.policy.loading import load_policy
from worker.policy.policy import Policy
from worker.policy.sources import TINY_ARITHMETIC, resolve
from worker.ranks.ranks import ALONE, Ranks
from worker.rollout.draws import Draws
from worker.rollout.engine import Request, Rollout
from worker.rollout.sampler import NativeEngine
from worker.tasks.items import Item
from worker.tasks.loading import load_items

CPU = torch.device("cpu")


def tiny_policy(
    model: Model | None = None, *, reference: bool = True, fast: bool = True, ranks: Ranks = ALONE
) -> Policy:
    """The shipped model, ready to train."""
    config = model or Model()
    source = resolve(TINY_ARITHMETIC, converted=Path("unused"), root=None, checkpoint=None)
    return load_policy(config, source, CPU, reference=reference, fast=fast, ranks=ranks)


def random_policy(
    vocabulary: int = 64, *, dtype: torch.dtype = torch.float64, seed: int = 0, fast: bool = True
) -> Policy:
    """A small model with random weights, in float64 where exactness is the point; its tokenizer is the tiny one's."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
    )
    model = LlamaForCausalLM(config).to(dtype)
    policy = Policy(model, tiny_policy(reference=False).tokenizer, CPU, "float32", fast=fast)
    reference = LlamaForCausalLM(config).to(dtype)
    reference.load_state_dict(model.state_dict())
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    policy.set_reference(dict(reference.named_parameters()))
    return policy


def weights_hash(trained: Trained) -> str:
    """SHA-256 over all trained weights: equal exactly if the weights are."""
    digest = hashlib.sha256()
    for name, parameter in trained.named_parameters():
        digest.update(name.encode() + parameter.detach().float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def items(count: int) -> Sequence[Item]:
    """Some arithmetic problems."""
    return load_items(Arithmetic(), fetch_upload=lambda _: b"").train[:count]


def ask(policy: Policy, prompts: int, group_size: int, draws: Draws | None, **decoding: Any) -> Request:
    """Some prompts for an engine."""
    ids = [policy.encode(item)[1] for item in items(prompts)]
    return Request(ids, group_size, Decoding.model_validate(decoding), draws)


def roll_out(policy: Policy, config: GrpoConfig, *, step: int = 0, asked: Sequence[Item] | None = None) -> Rollout:
    """One rollout of a configuration."""
    asked = asked or items(config.sampling.prompts_per_step)
    prompts = [policy.encode(item) for item in asked]
    texts, ids, group_size = [text for text, _ in prompts], [ids for _, ids in prompts], config.sampling.group_size
    draws = Draws(config.budget.seed, "train", step)
    request = Request(ids, group_size, config.sampling, draws, config.algorithm.logprobs)
    return Rollout(asked, texts, ids, group_size, NativeEngine(policy).sample(request))


def no_memory_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next backward pass finds no memory; those after it do."""
    failing, backward = iter([True]), torch.Tensor.backward

    def out_of_memory_once(self: torch.Tensor, *given: object, **named: object) -> None:
        if next(failing, False):
            raise torch.OutOfMemoryError("CUDA out of memory")
        backward(self, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(torch.Tensor, "backward", out_of_memory_once)
