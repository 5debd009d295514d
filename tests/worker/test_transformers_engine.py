"""transformers' continuous batching works on a copy: the policy's model is never touched."""

import threading
from types import SimpleNamespace

import pytest
import torch
from transformers import ContinuousBatchingConfig, PreTrainedModel
from transformers.generation.continuous_batching import ContinuousBatchingManager
from worker_models import ask, random_policy, tiny_policy

from backend.contract.model import Model
from backend.contract.training import Decoding
from worker.errors import RunFailure
from worker.failure import device_lost
from worker.policy.logprobs import TokenBatch
from worker.rollout import transformers_engine
from worker.rollout.draws import Draws
from worker.rollout.engine import Request
from worker.rollout.sampler import NativeEngine
from worker.rollout.transformers_engine import TransformersEngine

pytestmark = pytest.mark.slow

DRAWS = Draws(1, "train")


def test_the_policys_model_and_the_process_stay_as_they_were() -> None:
    policy = tiny_policy(reference=False)
    asked = ask(policy, 2, 1, None)
    attention, generator = policy.config._attn_implementation, torch.get_rng_state()
    parts, threads = list(policy.model.modules()), set(threading.enumerate())
    mine, native = TransformersEngine(policy).sample(asked), NativeEngine(policy).sample(asked)
    assert [one.ids for one in mine] == [one.ids for one in native]
    assert policy.config._attn_implementation == attention
    assert list(policy.model.modules()) == parts
    assert set(threading.enumerate()) <= threads
    assert torch.equal(torch.get_rng_state(), generator)


def test_in_float32_a_library_that_turns_to_flash_attention_is_told_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(ContinuousBatchingConfig, "auto_switch_to_flash", raising=False)  # as in 5.17
    asked = list[str]()
    monkeypatch.setattr(PreTrainedModel, "set_attn_implementation", lambda self, name: asked.append(name))
    for kind in ("float32", "bfloat16"):
        TransformersEngine(tiny_policy(Model(dtype=kind)))._synced_copy()
    assert asked == ["paged|sdpa"]


def test_it_samples_in_the_precision_that_the_policy_samples_in() -> None:
    policy = tiny_policy(Model(dtype="bfloat16"), reference=False)
    engine, asked = TransformersEngine(policy), ask(policy, 1, 1, DRAWS)
    (completion,) = engine.sample(asked)
    assert engine._copy is not None
    assert engine._copy.dtype == torch.bfloat16
    assert {parameter.dtype for parameter in policy.parameters()} == {torch.float32}
    assert completion.ids
    policy.updates += 1
    engine.sample(asked)
    assert not any(parameter.requires_grad for parameter in engine._copy.parameters())  # a copy remembers no history


def test_a_model_that_it_cannot_run_fails_the_run_with_what_to_do() -> None:
    policy = random_policy()
    policy.config.layer_types = ["a kind of layer that nobody wrote"] * 2
    with pytest.raises(
        RunFailure, match=r"Set sampling\.engine to native", check=lambda one: one.code == "engine_failed"
    ):
        TransformersEngine(policy).sample(Request([[5, 6]], 2, Decoding(), DRAWS))


def test_an_error_of_cuda_in_the_librarys_thread_is_no_fault_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    told = SimpleNamespace(error="CUDA error: an illegal memory access was encountered")
    monkeypatch.setattr(ContinuousBatchingManager, "get_result", lambda self, timeout: told)
    with pytest.raises(RuntimeError) as caught:
        TransformersEngine(random_policy()).sample(Request([[5, 6]], 2, Decoding(), DRAWS))
    assert device_lost(caught.value)


def test_a_cache_too_small_for_all_rows_changes_no_log_prob(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformers_engine, "_CPU_BLOCKS", 5)
    monkeypatch.setattr(transformers_engine, "_CPU_BATCH_TOKENS", 40)
    policy = tiny_policy(reference=False)
    asked = ask(policy, 3, 8, DRAWS, temperature=3.0)
    completions = TransformersEngine(policy).sample(asked)
    prompts_R = [prompt for prompt in asked.prompts_P for _ in range(8)]
    batch = TokenBatch.of(prompts_R, [completion.ids for completion in completions], policy.device)
    with torch.no_grad():
        own = policy.logprobs(batch, temperature=3.0).logprob_R_T
    for row, completion in enumerate(completions):
        assert completion.logprobs == pytest.approx(own[row, : len(completion.ids)].tolist(), abs=1e-4)
