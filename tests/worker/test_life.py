"""What a run held is gone when it is over, without waiting for Python's collector: a GPU's memory does not call it."""

import gc
import weakref
from collections.abc import Iterator

import pytest
import torch
from test_learner import advantages, train
from worker_models import roll_out, tiny_policy

from backend.contract.grpo import GrpoConfig
from backend.contract.model import Lora, Model
from backend.contract.training import Sampling
from worker.learner import Learner
from worker.policy.policy import Policy
from worker.rollout.draws import Draws
from worker.rollout.engine import Request
from worker.rollout.sampler import NativeEngine

CONFIG = GrpoConfig(sampling=Sampling(prompts_per_step=4, group_size=3))


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def held_by(policy: Policy) -> list[weakref.ref[torch.Tensor]]:
    weights = [weakref.ref(one) for one in policy.parameters()]
    return weights + [weakref.ref(one.grad) for one in policy.parameters() if one.grad is not None]


@pytest.mark.parametrize("lora", [None, Lora(rank=4)], ids=["all weights", "LoRA"])
def test_weights_gradients_and_slots_go_with_the_run(lora: Lora | None) -> None:
    policy = tiny_policy(Model(lora=lora))
    engine, learner = NativeEngine(policy), Learner(policy, CONFIG)
    rollout = roll_out(policy, CONFIG)
    engine.sample(Request(rollout.prompt_ids_P, 3, CONFIG.sampling, Draws(0, "train")))
    train(learner, rollout, advantages())
    held = held_by(policy)
    assert len(held) > len(policy.parameters())
    held += [weakref.ref(engine._slots._keys)] if engine._slots is not None else []
    del policy, engine, learner, rollout
    assert not [one for one in held if one() is not None]
