"""A decode step and a training pass as a GPU runs them, on the meta device: nothing waits for a number, nothing is on another device."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import Qwen2Config, Qwen2ForCausalLM
from worker_models import tiny_policy

from backend.contract.training import Decoding
from worker.policy import device
from worker.policy.fused import SamplingWeights
from worker.policy.logprobs import TokenBatch
from worker.policy.policy import Policy
from worker.rollout.draws import Draws
from worker.rollout.engine import Logprobs, Request
from worker.rollout.slots import Drawing, Slots

META = torch.device("meta")
WAITS = {"aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero", "aten::equal", "aten::masked_select"}


class Watch(TorchDispatchMode):
    """Notes what would make a GPU wait, and every tensor that is elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found = list[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        made = func(*args, **(kwargs or {}))
        made_there = [one for one in tree_leaves(made) if isinstance(one, Tensor)]
        elsewhere = {str(one.device) for one in (*given, *made_there) if one.device != META}
        if func.name().split(".")[0] in WAITS or elsewhere:
            self.found.append(f"{func.name()} {sorted(elsewhere)}")
        return made


@pytest.fixture
def policy(monkeypatch: pytest.MonkeyPatch) -> Policy:
    """Half precision, as on a GPU."""
    monkeypatch.setitem(device._ABILITIES, "meta", replace(device._ABILITIES["cuda"], recorder=None))
    config = Qwen2Config(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
    )
    model = Qwen2ForCausalLM(config).to(torch.bfloat16)
    made = Policy(model, tiny_policy(reference=False).tokenizer, META, "float32")
    monkeypatch.setattr(made._pass, "_checked", True)  # it compares numbers, which there are none of
    return made


@pytest.mark.parametrize("logprobs", ["tempered", "plain", "renormalized"])
@pytest.mark.parametrize("decoding", [{}, {"temperature": 0.7, "top_k": 5}, {"top_p": 0.9}])
def test_a_decode_step_waits_for_nothing(policy: Policy, decoding: dict[str, Any], logprobs: Logprobs) -> None:
    assert policy.decoder is not None
    weights = SamplingWeights(policy.decoder, policy.model.get_output_embeddings(), torch.bfloat16, rows=32)
    slots = Slots(weights, META, count=32, capacity=64, new=32, stop_ids={1, 2})
    slots.drawing = Drawing.of(Request([[1]], 1, Decoding.model_validate(decoding), Draws(0, "train"), logprobs))
    with torch.inference_mode(), Watch() as watch:
        slots._compute(weights, 16, 64)
    assert watch.found == []


def test_a_training_pass_waits_for_nothing(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: False)  # the meta device has no autocast
    monkeypatch.setattr(torch, "autocast", lambda kind, enabled: nullcontext())
    batch = TokenBatch.of([[1, 2, 3], [4, 5]] * 2, [[6, 7, 8, 9], [10], [11, 12], [13, 14, 15]], META)
    _ = batch.packing.lines  # laid out on the host, once for all layers
    with Watch() as watch:
        policy.logprobs(batch, temperature=1.0).logprob_R_T.sum().backward()
    assert watch.found == []
    assert all(parameter.grad is not None for parameter in policy.parameters())
