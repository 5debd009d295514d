"""What every engine beside the native one promises: the policy's own distribution, groups as they end, nothing left behind.

In a whole run, what is sampled in every step comes from the weights of that step.
"""

import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from vllm_service import VllmService
from wire import Wire, claimed, worker
from worker_models import items, tiny_policy

from backend.contract.model import Lora, Model
from backend.contract.protocol import Finish, Report
from backend.contract.training import Decoding, EngineName
from worker.errors import RunFailure
from worker.job import run_claim
from worker.policy.logprobs import TokenBatch
from worker.policy.policy import Policy
from worker.rollout.draws import Draws
from worker.rollout.engine import Completion, Engine, Request
from worker.rollout.engines import load_engine, offered_engines
from worker.rollout.sampler import NativeEngine
from worker.rollout.transformers_engine import TransformersEngine
from worker.rollout.vllm_engine import VllmEngine
from worker.settings import Settings

pytestmark = pytest.mark.slow

Loaded = Callable[[Policy], Engine]
DRAWS = Draws(3, "train", 1)


@pytest.fixture(params=[pytest.param("transformers", marks=pytest.mark.slow), "vllm"])
def load(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Loaded]:
    name: EngineName = request.param
    if name == "transformers":
        yield lambda policy: load_engine(name, policy, Settings())
        return
    plain = tiny_policy(reference=False)
    with VllmService.serving(plain.config, plain.tokenizer) as service:
        settings = Settings.model_validate({"vllm_url": service.url, "vllm_weights": tmp_path / "weights"})
        yield lambda policy: load_engine(name, policy, settings)


@pytest.fixture
def policy() -> Policy:
    return tiny_policy(reference=False)


def prompts_of(policy: Policy, count: int) -> list[list[int]]:
    return [policy.encode(item)[1] for item in items(count)]


def asking(prompts: list[list[int]], group_size: int, draws: Draws | None = DRAWS, **decoding: object) -> Request:
    return Request(prompts, group_size, Decoding.model_validate(decoding), draws)


def moved(policy: Policy) -> None:
    """What an update does, and large enough to be seen."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    policy.updates += 1


def furthest(policy: Policy, request: Request, completions: list[Completion]) -> float:
    """The largest difference between a sampled token's log-prob and the training pass's."""
    prompts_R = [prompt for prompt in request.prompts_P for _ in range(request.group_size)]
    batch = TokenBatch.of(prompts_R, [completion.ids for completion in completions], policy.device)
    with torch.no_grad():
        own = policy.logprobs(batch, temperature=request.decoding.temperature).logprob_R_T
    return max(
        abs(float(own[row, position]) - logprob)
        for row, completion in enumerate(completions)
        for position, logprob in enumerate(completion.logprobs)
    )


def same(left: list[Completion], right: list[Completion]) -> bool:
    return [(one.ids, one.text, one.finish_reason) for one in left] == [
        (one.ids, one.text, one.finish_reason) for one in right
    ]


@pytest.mark.parametrize("stop", [[], ["</think>"]])
def test_a_greedy_rollout_is_the_native_engines(policy: Policy, load: Loaded, stop: list[str]) -> None:
    request = asking(prompts_of(policy, 3), 2, None, stop=stop)
    mine, native = load(policy).sample(request), NativeEngine(policy).sample(request)
    assert same(mine, native)
    for one, other in zip(mine, native, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_log_probs_are_the_training_passes_also_behind_a_prompt_of_one_token(policy: Policy, load: Loaded) -> None:
    engine, request = load(policy), asking(prompts_of(policy, 3), 4, temperature=0.7)
    assert furthest(policy, request, engine.sample(request)) < 1e-4
    request = asking([[5], [6], *prompts_of(policy, 2)], 3, max_new_tokens=3)
    completions = engine.sample(request)
    assert furthest(policy, request, completions) < 1e-4
    assert all((len(one.ids), len(one.logprobs), one.finish_reason) == (3, 3, "length") for one in completions[6:])


@pytest.mark.thorough
def test_a_group_holds_different_completions_and_another_step_draws_others(policy: Policy, load: Loaded) -> None:
    engine, prompts = load(policy), prompts_of(policy, 2)
    steps = [
        engine.sample(asking(prompts, 8, Draws(3, "train", step), temperature=8.0, max_new_tokens=6))
        for step in range(2)
    ]
    assert [one.ids for one in steps[0]] != [one.ids for one in steps[1]]
    for group in (steps[0][:8], steps[0][8:]):
        assert len({tuple(one.ids) for one in group}) > 4
        assert len({one.ids[0] for one in group}) > 1


@pytest.mark.thorough
def test_tokens_are_drawn_as_often_as_the_policy_says(policy: Policy, load: Loaded) -> None:
    prompt, count = prompts_of(policy, 1)[0], 200
    completions = load(policy).sample(asking([prompt], count, temperature=6.0, max_new_tokens=1))
    with torch.no_grad():
        logprobs_V = (policy.model(torch.tensor([prompt])).logits[0, -1] / 6.0).log_softmax(-1)
    mean = float((logprobs_V.exp() * logprobs_V).sum())
    spread = float((logprobs_V.exp() * (logprobs_V - mean) ** 2).sum().sqrt())
    drawn = logprobs_V[[one.ids[0] for one in completions]]
    assert spread > 0.3
    assert abs(float(drawn.mean()) - mean) < 4 * spread / count**0.5


@pytest.mark.parametrize("lora", [None, Lora(rank=4)])
def test_an_update_is_seen_by_the_next_rollout(load: Loaded, lora: Lora | None) -> None:
    policy = tiny_policy(Model(lora=lora), reference=False)
    engine, request = load(policy), asking(prompts_of(policy, 2), 2, max_new_tokens=12)
    engine.sample(request)
    before = {name: parameter.clone() for name, parameter in policy.model.named_parameters()}
    for _ in range(2):
        moved(policy)
        assert furthest(policy, request, engine.sample(request)) < 1e-4
    changed = {name for name, parameter in policy.model.named_parameters() if not torch.equal(parameter, before[name])}
    # nothing else changed: adapters were merged elsewhere
    assert changed == {name for name, _ in policy.named_parameters()}


def test_groups_are_told_as_they_end_and_progress_only_grows(policy: Policy, load: Loaded) -> None:
    told, counts = dict[int, list[Completion]](), list[int]()
    completions = load(policy).sample(
        asking(prompts_of(policy, 4), 2), on_progress=counts.append, on_group=lambda p, group: told.update({p: group})
    )
    assert sorted(told) == [0, 1, 2, 3]
    assert [one for p in range(4) for one in told[p]] == completions
    assert counts[-1] == 8
    assert all(before <= after for before, after in pairwise(counts))


class Enough(Exception):
    """Ends a rollout."""


def test_progress_may_end_the_rollout_and_nothing_stays_behind(policy: Policy, load: Loaded) -> None:
    engine, prompts = load(policy), prompts_of(policy, 3)
    attention, generator = policy.config._attn_implementation, torch.get_rng_state()
    forward, threads = policy.model.forward, set(threading.enumerate())

    def enough(done: int) -> None:
        raise Enough

    with pytest.raises(Enough):
        engine.sample(asking(prompts, 2), on_progress=enough)
    started = [thread for thread in set(threading.enumerate()) - threads if "process_request" not in thread.name]
    assert started == []
    assert (policy.config._attn_implementation, policy.model.forward) == (attention, forward)
    assert torch.equal(torch.get_rng_state(), generator)
    assert same(engine.sample(asking(prompts, 2, None)), NativeEngine(policy).sample(asking(prompts, 2, None)))


def test_what_exceeds_the_model_and_log_probs_of_another_distribution_are_refused(policy: Policy, load: Loaded) -> None:
    engine = load(policy)
    with pytest.raises(RunFailure, match=r"Lower sampling\.max_new_tokens"):
        engine.sample(asking([[5] * 100], 2, max_new_tokens=30_000))
    with pytest.raises(ValueError, match="not of the distribution"):
        engine.sample(asking([[5, 6]], 2, top_k=3))


def test_a_worker_offers_what_it_can_sample_with_and_the_engine_is_the_one_that_was_chosen(
    policy: Policy, tmp_path: Path
) -> None:
    alone = Settings()
    named = Settings.model_validate({"vllm_url": "http://127.0.0.1:9", "vllm_weights": tmp_path})
    assert offered_engines(alone) == ["native", "transformers"]
    assert offered_engines(named) == ["native", "transformers", "vllm"]
    assert isinstance(load_engine("native", policy, alone), NativeEngine)
    assert isinstance(load_engine("transformers", policy, alone), TransformersEngine)
    assert isinstance(load_engine("vllm", policy, named), VllmEngine)
    with pytest.raises(RunFailure, match=r"does not sample with vllm.*sampling\.engine") as caught:
        load_engine("vllm", policy, alone)
    assert caught.value.code == "engine_missing"
    with pytest.raises(ValueError, match="GROUPSCOPE_VLLM_WEIGHTS"):  # a server without a folder for the weights
        Settings.model_validate({"vllm_url": "http://127.0.0.1:9"})


def trained_on_its_own_samples(engine: str, home: Path, **settings: object) -> None:
    """Steps large enough that weights which stayed behind would be seen in the log-probs."""
    wire = Wire()
    config = {
        "kind": "grpo",
        "sampling": {"engine": engine, "prompts_per_step": 2, "group_size": 4},
        "optimizer": {"learning_rate": 2e-3},
        "budget": {"steps": 3, "eval_every": 3, "eval_items": 2, "checkpoint_every": 0},
    }
    run_claim(worker(home, wire, **settings), claimed(config))
    assert isinstance(wire.told[-1], Finish), wire.told[-1]
    steps = {one.step: one.metrics for one in wire.told if isinstance(one, Report) and one.groups}
    assert list(steps) == [0, 1, 2]
    differences = [metrics["sampling_logprob_diff"] for metrics in steps.values()]
    assert all(one is not None and one < 1e-4 for one in differences)
    assert any((metrics["grad_norm"] or 0.0) > 0 for metrics in steps.values())


@pytest.mark.thorough
def test_a_run_on_transformers_continuous_batching(tmp_path: Path) -> None:
    trained_on_its_own_samples("transformers", tmp_path)


def test_a_run_on_a_vllm_server(policy: Policy, tmp_path: Path) -> None:
    with VllmService.serving(policy.config, policy.tokenizer) as service:
        trained_on_its_own_samples("vllm", tmp_path, vllm_url=service.url, vllm_weights=tmp_path / "weights")
    assert service.control.count("reload_weights") > 1
