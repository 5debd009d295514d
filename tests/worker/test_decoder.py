"""Our own loop over the layers computes what transformers computes, for the families that it knows, and leaves others alone."""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM
from witness import Witness, configured, train
from worker_models import CPU, tiny_policy

from backend.contract.training import Decoding
from worker.policy import decoder, linear
from worker.policy.decoder import Decoder
from worker.policy.functions import Rotation
from worker.policy.logprobs import TokenBatch
from worker.policy.policy import Policy
from worker.rollout.draws import Draws
from worker.rollout.engine import Request
from worker.rollout.sampler import NativeEngine

pytestmark = pytest.mark.slow

SIZE: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
}
ROPE = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
# The model's type, and what its configuration has beside the sizes.
KNOWN: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama-tied": ("llama", {"tie_word_embeddings": True, "pad_token_id": 5}),
    "llama3": ("llama", {"rope_parameters": ROPE | {"original_max_position_embeddings": 16}}),
    "llama-biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "mistral": ("mistral", {"sliding_window": None}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {}),
}
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "mistral-window": ("mistral", {"sliding_window": 16}),
    "dynamic-rope": ("llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}),
    "gemma2": ("gemma2", {}),
    "granite": ("granite", {"logits_scaling": 4.0}),
    "gpt2": ("gpt2", {}),
}
PROMPTS = [[5, 6, 7], [9], [1, 2, 3, 4, 5, 6, 7, 8, 9], [5, 6, 7]]
COMPLETIONS = [[10, 11, 12, 13], [14, 5], [16], [17, 18, 19]]


def policies(
    kind: str, changes: dict[str, Any], *, adapters: bool = False, targets: str | list[str] = "all-linear"
) -> list[Policy]:
    """The same random weights twice: by the fast paths, and by transformers alone."""
    found = []
    for fast in (True, False):
        torch.manual_seed(0)
        model: Any = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **SIZE | changes))
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3 if parameter.dim() > 1 else 1.0)
        if adapters:
            model = get_peft_model(model, LoraConfig(r=4, target_modules=targets, task_type="CAUSAL_LM"))
            for name, parameter in model.named_parameters():
                if "lora_B" in name or "lora_embedding_A" in name:
                    torch.nn.init.normal_(parameter, std=0.3)
        found.append(Policy(model, tiny_policy(reference=False).tokenizer, CPU, "float32", fast=fast))
    return found


def have_equal_gradients(fast: Policy, plain: Policy) -> None:
    for (name, mine), (_, theirs) in zip(fast.named_parameters(), plain.named_parameters(), strict=True):
        assert mine.grad is not None, name
        assert theirs.grad is not None
        assert torch.allclose(mine.grad, theirs.grad, rtol=1e-3, atol=1e-3 * float(theirs.grad.abs().max())), name


def agree(fast: Policy, plain: Policy) -> None:
    """Log-probs, entropies, every gradient, and what is sampled."""
    for policy in (fast, plain):
        values = policy.logprobs(TokenBatch.of(PROMPTS, COMPLETIONS, CPU), temperature=0.8)
        (values.logprob_R_T * torch.arange(16).view(4, 4) + values.entropy_R_T).sum().backward()
    have_equal_gradients(fast, plain)
    sampled = [
        NativeEngine(policy).sample(
            Request(PROMPTS, group_size=3, decoding=Decoding(max_new_tokens=20), draws=Draws(0, "train"))
        )
        for policy in (fast, plain)
    ]
    assert [one.ids for one in sampled[0]] == [one.ids for one in sampled[1]]
    for one, other in zip(*sampled, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


@pytest.mark.parametrize("family", KNOWN)
def test_a_known_family_is_computed_by_our_loop_and_equals_transformers(family: str) -> None:
    fast, plain = policies(*KNOWN[family])
    agree(fast, plain)
    assert fast.packs
    assert fast.decoder is not None
    assert not fast.remarks
    assert plain.decoder is None


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_adapters_are_part_of_what_our_loop_computes(family: str) -> None:
    fast, plain = policies(*KNOWN[family], adapters=True)
    agree(fast, plain)
    assert fast.packs
    batch = TokenBatch.of(PROMPTS, COMPLETIONS, CPU)
    without = fast.reference_logprobs(batch, temperature=1.0).logprob_R_T
    assert torch.allclose(without, plain.reference_logprobs(batch, temperature=1.0).logprob_R_T, atol=1e-4)
    assert not torch.allclose(without, fast.logprobs(batch, temperature=1.0).logprob_R_T, atol=1e-2)


@pytest.mark.parametrize("product", ["oneDNN", "torch"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("adapters", [False, True], ids=["all weights", "adapters"])
@pytest.mark.parametrize("family", KNOWN)
def test_a_pass_without_gradient_gives_the_very_bits_of_one_with(
    monkeypatch: pytest.MonkeyPatch, family: str, adapters: bool, precision: str, product: str
) -> None:
    """The reference is read without, the policy with: the optimizer would make whole steps of a difference in the last bit."""
    monkeypatch.setattr(linear, "prefers_onednn", lambda: product == "oneDNN")
    supports = [[sorted({token, 1, 2, 3}) for token in ids] for ids in COMPLETIONS]
    batch = TokenBatch.of(PROMPTS, COMPLETIONS, CPU, supports)
    for policy in policies(*KNOWN[family], adapters=adapters):
        monkeypatch.setattr(policy, "_dtype", precision)
        learning = policy.logprobs(batch, temperature=0.7)
        with torch.no_grad():
            reading = policy.logprobs(batch, temperature=0.7)
        for name in ("logprob_R_T", "full_logprob_R_T", "entropy_R_T"):
            assert torch.equal(getattr(learning, name), getattr(reading, name)), name


def test_adapters_on_other_modules_are_left_to_transformers() -> None:
    fast, plain = policies(*KNOWN["qwen2"], adapters=True, targets=["q_proj", "embed_tokens"])
    agree(fast, plain)
    assert fast.decoder is None


@pytest.mark.parametrize("other_product", [True, False])
def test_both_matrix_products_give_the_same(monkeypatch: pytest.MonkeyPatch, other_product: bool) -> None:
    monkeypatch.setattr(linear, "prefers_onednn", lambda: other_product)
    agree(*policies(*KNOWN["llama-tied"]))


@pytest.mark.parametrize("family", OTHERS)
def test_other_models_are_left_to_transformers_and_logits_that_are_more_than_a_product_are_found_out(
    family: str,
) -> None:
    fast, plain = policies(*OTHERS[family])
    agree(fast, plain)
    assert fast.decoder is None
    assert not fast.packs
    said = " ".join(fast.remarks)
    assert ("plain forward" in said and "slower" in said) == (family == "granite")  # gemma2 says so itself


def test_a_second_micro_batch_adds_to_the_gradient_of_the_first() -> None:
    fast, plain = policies(*KNOWN["llama-tied"])
    for policy in (fast, plain):
        for rows in (slice(0, 2), slice(2, 4)):
            batch = TokenBatch.of(PROMPTS[rows], COMPLETIONS[rows], CPU)
            policy.logprobs(batch, temperature=1.0).logprob_R_T.sum().backward()
    have_equal_gradients(fast, plain)


def test_a_resume_by_other_paths_than_before_is_said(tmp_path: Path) -> None:
    first, second = Witness(), Witness()
    config = configured(budget={"steps": 2, "checkpoint_every": 1, "eval_every": 0})
    train(config, tmp_path, first)
    train(config, tmp_path, second, resume=tmp_path / "run-1" / "step-1-attempt-1", attempt=2, fast=False)
    said = [line.message for line in second.said]
    assert any("step 1" in line and "packed" in line and "plain" in line for line in said)
    assert not any("differ in rounding" in line.message for line in first.said)


def test_a_fast_path_that_is_given_up_is_said_in_the_runs_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Decoder, "normalise", lambda self, x: 2 * x)
    witness = Witness()
    train(configured(budget={"steps": 1, "eval_every": 0}), tmp_path, witness)
    warned = [line.message for line in witness.said if line.level == "warning"]
    for path in ("training pass (packed)", "sampler"):
        assert any(path in line and "plain forward" in line for line in warned)


def test_weights_that_read_the_same_input_stand_one_behind_the_other_and_keep_their_values() -> None:
    torch.manual_seed(0)
    weights = [torch.nn.Parameter(torch.randn(rows, 5, dtype=torch.float64)) for rows in (4, 2, 3)]
    values = [weight.detach().clone() for weight in weights]
    assert linear.adjoining(weights) is None
    linear.adjoin(weights)
    assert all(map(torch.equal, weights, values))
    both = linear.adjoining(weights)
    assert both is not None
    assert both.data_ptr() == weights[0].data_ptr()
    assert torch.equal(both, torch.cat(values))
    weights[2].data = weights[2].data.clone()  # as another one's weights trade places with these
    assert linear.adjoining(weights) is None
    assert linear.adjoining(weights[:2]) is not None
    assert linear.adjoining(weights[1::-1]) is None


@pytest.mark.parametrize("frozen", ["", "norm", "first", "second", "all"])
def test_linear_layers_behind_a_norm_have_the_gradients_of_their_formula(frozen: str) -> None:
    torch.manual_seed(0)
    first, second = (torch.nn.Linear(5, rows, bias=frozen == "", dtype=torch.float64) for rows in (4, 3))
    before = torch.nn.RMSNorm(5, eps=1e-3, dtype=torch.float64)
    before.variance_epsilon = 1e-3  # type: ignore[assignment]
    torch.nn.init.normal_(before.weight)
    linear.adjoin([first.weight, second.weight])
    named = {"norm": before.weight, "first": first.weight, "second": second.weight}
    for name, weight in named.items():
        weight.requires_grad_(frozen not in (name, "all"))
    assert linear.adjoining([first.weight, second.weight]) is not None
    x, own = torch.randn(6, 5, dtype=torch.float64, requires_grad=True), torch.randn(6, 7, dtype=torch.float64)
    wanted = [x, *(weight for weight in named.values() if weight.requires_grad)]
    found = []
    for joined in (True, False):
        normal = x * (x.square().mean(-1, keepdim=True) + 1e-3).rsqrt() * before.weight
        plain = torch.cat([first(normal), second(normal)], dim=1)
        y = torch.cat(decoder.project_all(x, before, [first, second]), dim=1) if joined else plain
        found.append([y, *torch.autograd.grad((y * own).sum(), wanted)])
    for mine, plain in zip(*found, strict=True):
        assert torch.allclose(mine, plain, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("adapters", [False, True])
def test_weights_of_the_policy_and_of_its_reference_are_joined(adapters: bool) -> None:
    policy, _ = policies(*KNOWN["llama"], adapters=adapters)
    held = [dict(policy.named_parameters())]
    if not adapters:
        policy.copy_reference()
        held.append(policy.reference_weights or {})
    for together in ("self_attn.q self_attn.k self_attn.v", "mlp.gate mlp.up"):
        names = [f"model.layers.1.{name}_proj.weight" for name in together.split()]
        found = [linear.adjoining([weights[name] for name in names]) for weights in held if names[0] in weights]
        assert len(found) == 2 * (not adapters)
        assert None not in found


def test_a_rotation_has_the_gradient_of_its_formula() -> None:
    torch.manual_seed(0)
    angles = torch.randn(5, 1, 3, dtype=torch.float64)
    rotate = Rotation(angles.cos(), angles.sin())
    states = torch.randn(5, 2, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(rotate, states)
    with torch.no_grad():
        first, second = states.chunk(2, dim=-1)
        plain = [first * rotate.cos - second * rotate.sin, second * rotate.cos + first * rotate.sin]
        assert torch.allclose(rotate(states), torch.cat(plain, dim=-1))
