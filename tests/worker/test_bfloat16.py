"""Half precision on a random four-layer Qwen2: what training keeps, and how far sampling and training are from each other."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from test_learner import gradients
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM
from worker_models import CPU, tiny_policy

from backend.catalog import SHAPES
from backend.contract.model import Lora, Model
from backend.contract.model_shape import ModelShape
from backend.contract.recipes import SMOLLM2
from backend.contract.training import Decoding
from backend.preflight.memory import Computing, _activations_per_token, _copies
from worker.policy import device, logprobs
from worker.policy.attention import attend
from worker.policy.decoder import rms_norm
from worker.policy.fused import Fused
from worker.policy.loading import load_policy
from worker.policy.logprobs import TokenBatch
from worker.policy.policy import Policy
from worker.policy.sources import Pretrained
from worker.ranks.ranks import Ranks
from worker.rollout.draws import Draws
from worker.rollout.engine import Request
from worker.rollout.sampler import NativeEngine

pytestmark = pytest.mark.slow

SHAPE = ModelShape(
    hidden=256, layers=4, heads=8, kv_heads=2, head_dim=32, intermediate=704, vocabulary=512, context=2048
)
LIKE_SMOLLM2 = SHAPES[SMOLLM2].model_copy(update={"layers": 4})  # each adds the same
LENGTHS = {"short completions": (256, 64, 8), "long completions": (64, 512, 2)}  # prompt, completion, completions


def dimensions(shape: ModelShape) -> dict[str, Any]:
    """As transformers' configurations name them."""
    return {
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "max_position_embeddings": shape.context,
        "tie_word_embeddings": True,
    }


def qwen2(dtype: str) -> Policy:
    torch.manual_seed(0)
    config = Qwen2Config(**dimensions(SHAPE), initializer_range=0.045)
    return Policy(Qwen2ForCausalLM(config), tiny_policy(reference=False).tokenizer, CPU, dtype)


def batch_of(prompt: int, completion: int, rows: int) -> TokenBatch:
    draw = torch.Generator().manual_seed(1)
    tokens = torch.randint(SHAPE.vocabulary, (rows, completion), generator=draw).tolist()
    return TokenBatch.of([list(range(prompt))] * rows, tokens, CPU)


def kept_by(policy: Policy, batch: TokenBatch, *, copies: bool = False) -> int:
    """Bytes that the gradient keeps of a pass: without weights and logits, and either without their copies or of those alone."""
    with torch.no_grad():
        policy.logprobs(batch, temperature=1.0)  # the check of the first pass is not counted
    weights = list(policy.model.parameters())
    own = {weight.untyped_storage().data_ptr() for weight in weights}
    shapes = {shape for weight in weights for shape in (tuple(weight.shape), tuple(weight.shape)[::-1])}
    kept = dict[int, Tensor]()  # the tensors themselves: a place in memory that is freed is taken again

    logits = len(batch.ids_M), policy.config.get_text_config().vocab_size

    def keep(tensor: Tensor) -> Tensor:
        if (
            tensor.shape != logits
            and (tuple(tensor.shape) in shapes) is copies
            and tensor.untyped_storage().data_ptr() not in own
        ):
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        values = policy.logprobs(batch, temperature=1.0)
    assert values.logprob_R_T.requires_grad
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_preflight_counts_what_the_gradient_keeps_within_a_tenth(lengths: tuple[int, int, int]) -> None:
    batch = batch_of(*lengths)
    counted = len(batch.packing.ids_N) * _activations_per_token(SHAPE, Model(), Computing(on_gpu=True, in_half=True))
    assert kept_by(qwen2("bfloat16"), batch) == pytest.approx(counted, rel=0.1)


def test_preflight_counts_the_copies_of_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(device._ABILITIES, "cpu", replace(device._ABILITIES["cpu"], keeps_copies=True))
    policy, batch = qwen2("bfloat16"), batch_of(64, 32, 4)
    engine = NativeEngine(policy)
    engine.sample(Request([[1, 2, 3]], 1, Decoding(max_new_tokens=4), Draws(0, "train")))
    assert engine._weights is not None
    parts = [part for layer in engine._weights.layers for part in vars(layer).values() if isinstance(part, Fused)]
    for_sampling = sum(part._weight.nbytes for part in (*parts, engine._weights._output) if part._weight is not None)
    found = for_sampling + kept_by(policy, batch, copies=True)
    assert found == pytest.approx(_copies(SHAPE, Computing(on_gpu=True, in_half=True)), rel=0.1)


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of SmolLM2's shape with fewer layers and random weights."""
    folder = tmp_path_factory.mktemp("models") / "smollm2"
    LlamaForCausalLM(LlamaConfig(**dimensions(LIKE_SMOLLM2))).save_pretrained(folder)
    tiny_policy(reference=False).tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("lora", "dtype", "lengths"),
    [
        pytest.param(Lora(), "bfloat16", (64, 16, 4), marks=pytest.mark.thorough),
        pytest.param(Lora(), "bfloat16", (32, 96, 2), marks=pytest.mark.thorough),
        (Lora(), "float32", (32, 96, 2)),
        (Lora(rank=64, target_modules=["q_proj", "v_proj"]), "float32", (64, 16, 4)),
    ],
    ids=["short completions", "long completions", "in float32", "of two layers"],
)
def test_preflight_counts_what_adapters_of_smollm2_keep_within_a_tenth(
    lora: Lora, dtype: Literal["bfloat16", "float32"], lengths: tuple[int, int, int], smollm2: Path
) -> None:
    model, batch = Model(lora=lora, dtype=dtype), batch_of(*lengths)
    policy = load_policy(model, Pretrained(str(smollm2)), CPU)
    how = Computing(on_gpu=True, in_half=dtype == "bfloat16")
    counted = len(batch.packing.ids_N) * _activations_per_token(LIKE_SMOLLM2, model, how)
    assert kept_by(policy, batch) == pytest.approx(counted, rel=0.1)


@pytest.mark.thorough
def test_gradients_in_half_precision_point_where_those_in_float32_do() -> None:
    found = []
    for dtype in ("bfloat16", "float32"):
        policy = qwen2(dtype)
        policy.logprobs(batch_of(64, 128, 4), temperature=1.0).logprob_R_T.sum().backward()
        found.append(gradients(policy))
        assert found[-1].dtype is torch.float32
    assert float(torch.cosine_similarity(*found, dim=0)) > 0.999


def test_attention_that_is_wrong_in_half_precision_alone_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(queries: Tensor, *given: Any) -> Tensor:
        return attend(queries, *given) * (0.5 if queries.dtype is torch.bfloat16 else 1)

    monkeypatch.setattr(logprobs, "attend", wrong)
    policy = qwen2("bfloat16")
    policy.logprobs(batch_of(64, 128, 4), temperature=1.0)
    assert policy.computed_by.startswith("rows")
    assert "(packed)" in policy.remarks[0]


def test_a_path_that_one_process_refuses_is_compared_no_further_by_any(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, compared, others = qwen2("bfloat16"), list[bool](), iter(["0.5", "", ""])

    def fine(*_: object) -> tuple[float, float]:
        compared.append(torch.is_autocast_enabled("cpu"))
        return 0.0, 1.0

    monkeypatch.setattr(logprobs.TrainingPass, "apart_from_plain", fine)
    monkeypatch.setattr(Ranks, "gather", lambda ranks, own: [own, next(others)])
    policy.logprobs(batch_of(8, 4, 2), temperature=1.0)
    assert compared == [False, False, True]  # the first path in float32; the second one in both
    assert policy.remarks[0].startswith("the log-probs of the fast training pass (packed) are 0.5 apart")


def test_a_norm_keeps_its_precision_where_autocast_gives_another_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """As autocast of torch 2.12 and later does on a GPU: queries and keys that have norms of their own would not fit the values."""
    monkeypatch.setitem(device._ABILITIES, "cpu", replace(device._ABILITIES["cpu"], whole_norm=True))
    torchs_own = torch.nn.functional.rms_norm
    monkeypatch.setattr(torch.nn.functional, "rms_norm", lambda *given: torchs_own(*given).float())
    for enabled in (True, False):
        with torch.set_grad_enabled(enabled):
            assert rms_norm(torch.ones(2, 8, dtype=torch.bfloat16), torch.ones(8), 1e-6).dtype is torch.bfloat16
    one = torch.ones(1, 4, 8)
    with pytest.raises(TypeError, match="one precision"):
        attend(one, one, one.bfloat16(), batch_of(1, 1, 1).packing)


@pytest.mark.thorough
def test_the_sampler_is_as_near_to_the_training_pass_as_rounding_allows() -> None:
    policy = qwen2("bfloat16")
    prompts = [list(range(first, first + 32)) for first in range(4)]
    how = Decoding(max_new_tokens=64)
    completions = NativeEngine(policy).sample(Request(prompts, 4, how, Draws(0, "train")))
    rows = [prompt for prompt in prompts for _ in range(4)]
    batch = TokenBatch.of(rows, [one.ids for one in completions], CPU)
    with torch.no_grad():
        trained = policy.logprobs(batch, temperature=1.0).logprob_R_T[batch.mask_R_T]
    sampled = torch.tensor([logprob for one in completions for logprob in one.logprobs])
    assert float((trained - sampled).abs().mean()) < 0.006
