"""What every engine beside the native one promises: the policy's own distribution, groups as they end, nothing left behind."""

import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from vllm_service import VllmService
from worker_models import items, tiny_policy

from backend.contract.model import Lora, Model
from backend.contract.training import Decoding, EngineName
from worker.errors import RunFailure
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


def prompts_of(policy: Policy, count: int) -> list[list[int]]:
    return [policy.encode(item)[1] for item in items(count)]


def moved(policy: Policy) -> None:
    """What an update does, and large enough to be seen."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    policy.updates += 1


def furthest(policy: Policy, prompts_R: list[list[int]], completions: list[Completion], temperature: float) -> float:
    """The largest difference between a sampled token's log-prob and the training pass's."""
    batch = TokenBatch.of(prompts_R, [completion.ids for completion in completions], policy.device)
    with torch.no_grad():
        own = policy.logprobs(batch, temperature=temperature).logprob_R_T
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
def test_a_greedy_rollout_is_the_native_engines(load: Loaded, stop: list[str]) -> None:
    policy, decoding = tiny_policy(reference=False), Decoding(stop=stop)
    prompts = prompts_of(policy, 3)
    mine = load(policy).sample(Request(prompts, group_size=2, decoding=decoding, draws=None))
    native = NativeEngine(policy).sample(Request(prompts, group_size=2, decoding=decoding, draws=None))
    assert same(mine, native)
    for one, other in zip(mine, native, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_completions_are_cut_at_the_limit(load: Loaded) -> None:
    policy = tiny_policy(reference=False)
    completions = load(policy).sample(
        Request(prompts_of(policy, 2), group_size=2, decoding=Decoding(max_new_tokens=3), draws=DRAWS)
    )
    assert all((len(one.ids), len(one.logprobs), one.finish_reason) == (3, 3, "length") for one in completions)


@pytest.mark.parametrize("temperature", [0.7, pytest.param(1.0, marks=pytest.mark.thorough)])
def test_log_probs_are_the_training_passes(load: Loaded, temperature: float) -> None:
    policy, decoding = tiny_policy(reference=False), Decoding(temperature=temperature)
    prompts = prompts_of(policy, 3)
    completions = load(policy).sample(Request(prompts, group_size=4, decoding=decoding, draws=DRAWS))
    assert furthest(policy, [prompt for prompt in prompts for _ in range(4)], completions, temperature) < 1e-4


@pytest.mark.thorough
def test_a_group_holds_different_completions(load: Loaded) -> None:
    policy, decoding = tiny_policy(reference=False), Decoding(temperature=8.0, max_new_tokens=6)
    completions = load(policy).sample(Request(prompts_of(policy, 2), group_size=8, decoding=decoding, draws=DRAWS))
    for group in (completions[:8], completions[8:]):
        assert len({tuple(one.ids) for one in group}) > 4
        assert len({one.ids[0] for one in group}) > 1


@pytest.mark.thorough
def test_tokens_are_drawn_as_often_as_the_policy_says(load: Loaded) -> None:
    policy, decoding = tiny_policy(reference=False), Decoding(temperature=6.0, max_new_tokens=1)
    prompt, count = prompts_of(policy, 1)[0], 200
    completions = load(policy).sample(Request([prompt], group_size=count, decoding=decoding, draws=DRAWS))
    with torch.no_grad():
        logprobs_V = (policy.model(torch.tensor([prompt])).logits[0, -1] / 6.0).log_softmax(-1)
    mean = float((logprobs_V.exp() * logprobs_V).sum())
    spread = float((logprobs_V.exp() * (logprobs_V - mean) ** 2).sum().sqrt())
    drawn = logprobs_V[[one.ids[0] for one in completions]]
    assert spread > 0.3
    assert abs(float(drawn.mean()) - mean) < 4 * spread / count**0.5


@pytest.mark.thorough
def test_another_step_draws_others(load: Loaded) -> None:
    policy, decoding = tiny_policy(reference=False), Decoding(temperature=2.0)
    engine, prompts = load(policy), prompts_of(policy, 2)
    steps = [
        engine.sample(Request(prompts, group_size=4, decoding=decoding, draws=Draws(3, "train", step)))
        for step in range(2)
    ]
    assert [one.ids for one in steps[0]] != [one.ids for one in steps[1]]


@pytest.mark.parametrize("lora", [None, Lora(rank=4)])
def test_an_update_is_seen_by_the_next_rollout(load: Loaded, lora: Lora | None) -> None:
    policy, decoding = tiny_policy(Model(lora=lora), reference=False), Decoding(max_new_tokens=12)
    engine, prompts = load(policy), prompts_of(policy, 2)
    engine.sample(Request(prompts, group_size=2, decoding=decoding, draws=DRAWS))
    before = {name: parameter.clone() for name, parameter in policy.model.named_parameters()}
    for _ in range(2):
        moved(policy)
        completions = engine.sample(Request(prompts, group_size=2, decoding=decoding, draws=DRAWS))
        assert furthest(policy, [prompt for prompt in prompts for _ in range(2)], completions, 1.0) < 1e-4
    changed = {name for name, parameter in policy.model.named_parameters() if not torch.equal(parameter, before[name])}
    # nothing else changed: adapters were merged elsewhere
    assert changed == {name for name, _ in policy.named_parameters()}


def test_groups_are_told_as_they_end_and_progress_only_grows(load: Loaded) -> None:
    policy = tiny_policy(reference=False)
    told: dict[int, list[Completion]] = {}
    counts: list[int] = []
    completions = load(policy).sample(
        Request(prompts_of(policy, 4), group_size=2, decoding=Decoding(), draws=DRAWS),
        on_progress=counts.append,
        on_group=lambda p, group: told.__setitem__(p, group),
    )
    assert sorted(told) == [0, 1, 2, 3]
    assert [one for p in range(4) for one in told[p]] == completions
    assert counts[-1] == 8
    assert all(before <= after for before, after in pairwise(counts))


class Enough(Exception):
    """Ends a rollout."""


def test_progress_may_end_the_rollout_and_nothing_stays_behind(load: Loaded) -> None:
    policy = tiny_policy(reference=False)
    engine, prompts = load(policy), prompts_of(policy, 3)
    attention, generator = policy.config._attn_implementation, torch.get_rng_state()
    forward, threads = policy.model.forward, set(threading.enumerate())

    def enough(done: int) -> None:
        raise Enough

    with pytest.raises(Enough):
        engine.sample(Request(prompts, group_size=2, decoding=Decoding(), draws=DRAWS), on_progress=enough)
    started = [thread for thread in set(threading.enumerate()) - threads if "process_request" not in thread.name]
    assert started == []
    assert (policy.config._attn_implementation, policy.model.forward) == (attention, forward)
    assert torch.equal(torch.get_rng_state(), generator)
    again = engine.sample(Request(prompts, group_size=2, decoding=Decoding(), draws=None))
    assert same(again, NativeEngine(policy).sample(Request(prompts, group_size=2, decoding=Decoding(), draws=None)))


def test_a_prompt_of_one_token_is_continued(load: Loaded) -> None:
    policy, decoding = tiny_policy(reference=False), Decoding(max_new_tokens=4)
    completions = load(policy).sample(Request([[5], [6]], group_size=3, decoding=decoding, draws=DRAWS))
    assert furthest(policy, [[5]] * 3 + [[6]] * 3, completions, 1.0) < 1e-4


def test_what_does_not_fit_the_model_is_refused(load: Loaded) -> None:
    policy = tiny_policy(reference=False)
    with pytest.raises(RunFailure, match=r"Lower sampling\.max_new_tokens"):
        load(policy).sample(Request([[5] * 100], group_size=2, decoding=Decoding(max_new_tokens=30_000), draws=DRAWS))


def test_log_probs_of_another_distribution_are_not_given(load: Loaded) -> None:
    policy = tiny_policy(reference=False)
    with pytest.raises(ValueError, match="not of the distribution"):
        load(policy).sample(Request([[5, 6]], group_size=2, decoding=Decoding(top_k=3), draws=DRAWS))


# ---- choosing


def test_a_worker_offers_what_it_can_sample_with(tmp_path: Path) -> None:
    assert offered_engines(Settings()) == ["native", "transformers"]
    named = Settings.model_validate({"vllm_url": "http://127.0.0.1:9", "vllm_weights": tmp_path})
    assert offered_engines(named) == ["native", "transformers", "vllm"]


def test_the_engine_is_the_one_that_was_chosen(tmp_path: Path) -> None:
    policy = tiny_policy(reference=False)
    named = Settings.model_validate({"vllm_url": "http://127.0.0.1:9", "vllm_weights": tmp_path})
    assert isinstance(load_engine("native", policy, Settings()), NativeEngine)
    assert isinstance(load_engine("transformers", policy, Settings()), TransformersEngine)
    assert isinstance(load_engine("vllm", policy, named), VllmEngine)
    with pytest.raises(RunFailure, match="does not sample with vllm"):
        load_engine("vllm", policy, Settings())


def test_a_server_without_a_folder_for_the_weights_is_no_setting() -> None:
    with pytest.raises(ValueError, match="GROUPSCOPE_VLLM_WEIGHTS"):
        Settings.model_validate({"vllm_url": "http://127.0.0.1:9"})
