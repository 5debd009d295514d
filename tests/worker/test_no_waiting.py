"""A decode step and a training pass as a GPU runs them, on the meta device: nothing waits for a number, nothing is on another device."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from test_learner import advantages, configured, ragged
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from worker_models import random_policy

from backend.contract.algorithm import Logprobs
from backend.contract.training import Decoding
from worker.algorithms.advantages import group_statistics
from worker.credit import Credit
from worker.learner import Learner, _Pass
from worker.policy import device
from worker.policy.device import Transfers
from worker.policy.fused import SamplingWeights
from worker.policy.logprobs import TokenBatch
from worker.policy.policy import Policy
from worker.rollout.draws import Draws
from worker.rollout.engine import Request
from worker.rollout.slots import Drawing, Slots

META = torch.device("meta")
WAITS = {
    "aten::_local_scalar_dense",
    "aten::nonzero",
    "aten::is_nonzero",
    "aten::equal",
    "aten::masked_select",
    "aten::masked_scatter_backward",  # which asks how many there are
}


class Watch(TorchDispatchMode):
    """Notes what would make a GPU wait, what the host sends there, and every tensor that is elsewhere.

    What the host fetches, or would have to know, the meta device refuses.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sent, self.waited, self.elsewhere = 0, list[str](), list[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        made = func(*args, **(kwargs or {}))
        devices = {one.device for one in (*given, *tree_leaves(made)) if isinstance(one, Tensor)}
        sends = isinstance(made, Tensor) and made.device == META and any(one.device != META for one in given)
        self.sent += sends
        waits = func.name().split(".")[0] in WAITS and META in devices
        if waits or (sends and not (kwargs or {}).get("non_blocking")):
            self.waited.append(func.name())
        if devices - {META}:
            self.elsewhere.append(f"{func.name()} {devices}")
        return made


@pytest.fixture
def policy(monkeypatch: pytest.MonkeyPatch) -> Policy:
    """Half precision, as on a GPU."""
    monkeypatch.setitem(device._ABILITIES, "meta", replace(device._ABILITIES["cuda"], recorder=None))
    # A vocabulary of more than the likeliest, which top-p looks at first where it may look.
    plain = random_policy(2048, dtype=torch.bfloat16)
    made = Policy(plain.model, plain.tokenizer, META, "float32")
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
    assert (watch.waited, watch.elsewhere) == ([], [])


@pytest.fixture
def no_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    """The meta device has none."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: False)
    monkeypatch.setattr(torch, "autocast", lambda kind, enabled: nullcontext())


@pytest.mark.usefixtures("no_autocast")
def test_a_training_pass_waits_for_nothing(policy: Policy) -> None:
    batch = TokenBatch.of([[1, 2, 3], [4, 5]] * 2, [[6, 7, 8, 9], [10], [11, 12], [13, 14, 15]], META)
    _ = batch.packing.varlen  # laid out on the host, once for all layers
    with Watch() as watch:
        policy.logprobs(batch, temperature=1.0).logprob_R_T.sum().backward()
    assert (watch.waited, watch.elsewhere) == ([], [])
    assert all(parameter.grad is not None for parameter in policy.parameters())


@pytest.mark.slow
@pytest.mark.usefixtures("no_autocast")
@pytest.mark.parametrize(
    "algorithm",
    [
        {},
        {"kl": {"beta": 0}},
        {"surrogate": {"kind": "dpo"}, "aggregation": "group_sum", "advantage": {"kind": "best_worst"}},
        {"advantage": {"kind": "gae"}},
    ],
    ids=["grpo", "no reference", "dpo", "ppo"],
)
def test_the_micro_batches_of_an_update_wait_for_nothing(
    algorithm: dict[str, Any], policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Transfers, "fetch", lambda self: None)  # once, behind the last gradient
    learner, rollout = Learner(policy, configured(tokens=20, **algorithm)), ragged()
    policy.copy_reference()
    batch = learner.split(rollout)
    assert len(batch.micro_batches) > 2
    rewards_P_G = advantages().reshape(-1, rollout.group_size)
    returns = torch.zeros(rollout.rows, 9) if algorithm.get("advantage") == {"kind": "gae"} else None
    credit = Credit(rewards_P_G, group_statistics(rewards_P_G), advantages()[:, None], None, returns)
    weights = torch.full((rollout.rows, 9), 0.1)
    with Watch() as seen:
        learner.measure_before(batch)
        learner._pass_through(partial(_Pass, batch, credit, weights, batch.tokens), lambda phase, done, total: None)
    assert seen.sent > len(batch.micro_batches)
    assert seen.waited == []
