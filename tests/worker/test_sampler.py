"""The sampling engine."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from worker_models import ask, random_policy, roll_out, tiny_policy

from backend.contract.algorithm import Logprobs
from backend.contract.grpo import GrpoConfig
from backend.contract.training import Decoding, Sampling
from worker.errors import RunFailure
from worker.policy import device
from worker.policy.policy import Policy
from worker.ranks.ranks import Ranks
from worker.rollout import choice, sampler
from worker.rollout.choice import choose, truncate
from worker.rollout.draws import Draws, uniforms
from worker.rollout.engine import Completion, Request, Rollout
from worker.rollout.sampler import NativeEngine
from worker.rollout.slots import Slots

CONFIG = GrpoConfig(sampling=Sampling(prompts_per_step=4, group_size=4))


def ids(rollout: Rollout) -> list[list[int]]:
    return [completion.ids for completion in rollout.completions_R]


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 3, 7])
def test_a_completion_does_not_depend_on_how_many_fit_beside_it(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    policy = tiny_policy(reference=False)
    together = roll_out(policy, CONFIG)
    token_bytes = 2 * 4 * 128 * 4  # keys and values of 4 layers, in float32
    monkeypatch.setattr(sampler, "cache_bytes", lambda device, promised: rows * 64 * token_bytes)
    made = []
    monkeypatch.setattr(sampler, "Slots", lambda *given, **named: made.append(named["count"]) or Slots(*given, **named))
    apart = roll_out(policy, CONFIG)
    assert made[-1] == rows  # the others waited
    assert ids(apart) == ids(together)
    for one, other in zip(apart.completions_R, together.completions_R, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("logprobs", ["tempered", "plain", "renormalized"])
@pytest.mark.parametrize(
    "decoding", [{}, {"temperature": 0.7, "top_k": 5}, {"stop": ["</think>"]}, {"max_new_tokens": 1}]
)
def test_the_fast_sampler_draws_what_the_plain_one_draws(decoding: dict[str, Any], logprobs: Logprobs) -> None:
    asked = ask(tiny_policy(reference=False), 3, 4, Draws(1, "train", 2), **decoding)
    asked = replace(asked, logprobs=logprobs, first_group=5)
    fast, plain = (NativeEngine(tiny_policy(reference=False, fast=fast)).sample(asked) for fast in (True, False))
    for one, other in zip(fast, plain, strict=True):
        assert replace(one, logprobs=[]) == replace(other, logprobs=[])
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_a_group_is_told_of_when_its_last_completion_ends_and_texts_are_there() -> None:
    policy, told, progress = tiny_policy(reference=False), {}, []

    def tell(p: int, group: list[Completion]) -> None:
        assert p not in told
        told[p] = [completion.text for completion in group]

    asked = ask(policy, 5, 3, Draws(0, "train"))
    completions = NativeEngine(policy).sample(asked, on_group=tell, on_progress=progress.append)
    texts = [completion.text for completion in completions]
    assert told == {p: texts[3 * p : 3 * p + 3] for p in range(5)}
    assert list(told) != sorted(told)  # as they end
    assert progress == sorted(progress)
    assert progress[-1] == 15


def test_the_weights_of_now_are_sampled() -> None:
    policy = tiny_policy(reference=False)
    engine, asked = NativeEngine(policy), ask(policy, 1, 1, None)
    before = engine.sample(asked)[0].ids
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    policy.updates += 1
    assert engine.sample(asked)[0].ids == NativeEngine(policy).sample(asked)[0].ids != before


def wrong_output(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    assert policy.decoder is not None
    monkeypatch.setattr(policy.decoder, "normalise", lambda x: 2 * x)


def wrong_beside_the_first_row(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Slots.place

    def one_token_short(self: Slots, slots_N: Tensor, *given: Any) -> Tensor:
        allowed = place(self, slots_N, *given)
        self._length[slots_N[slots_N > 0]] -= 1
        return allowed

    monkeypatch.setattr(Slots, "place", one_token_short)


@pytest.mark.parametrize("fault", [wrong_output, wrong_beside_the_first_row])
def test_a_fast_sampler_that_is_wrong_is_not_used_and_the_run_says_so(
    fault: Callable[[Policy, pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tiny_policy(reference=False)
    right = ids(roll_out(tiny_policy(reference=False, fast=False), CONFIG))
    fault(policy, monkeypatch)
    assert ids(roll_out(policy, CONFIG)) == right
    assert any("sampler" in remark and "plain forward" in remark for remark in policy.remarks)


def test_all_processes_say_the_same_of_a_fast_sampler_that_is_wrong_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = tiny_policy(reference=False)
    monkeypatch.setattr(Ranks, "gather", lambda ranks, own: [own, math.nan] if isinstance(own, float) else [own])
    roll_out(policy, CONFIG)
    assert "the fast sampler's log-probs are nan apart" in "; ".join(policy.remarks)


def test_a_process_that_has_all_weights_samples_from_a_copy_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ranks, "gather", lambda ranks, own: [own, own])
    monkeypatch.setattr(Ranks, "of_first", lambda ranks, own: own)
    policy = tiny_policy(reference=False, ranks=Ranks(0, 2, shards=1))
    assert ids(roll_out(policy, CONFIG)) == ids(roll_out(tiny_policy(reference=False), CONFIG))


def uniforms_at(draws: Draws, groups: list[int], completions: list[int], positions: range) -> Tensor:
    keys = draws.keys(torch.tensor(groups), torch.tensor(completions))
    return torch.stack([uniforms(keys, torch.full_like(keys, position)) for position in positions], dim=1)


def test_draws_are_uniform_the_same_on_every_machine_and_anew_for_every_step_seed_and_completion() -> None:
    groups, rows = [0, 0, 1], [0, 1, 0]
    each = [
        uniforms_at(Draws(seed, stream, step), groups, rows, range(5))
        for seed in (0, 1)
        for stream in ("train", "eval", "sample")
        for step in (0, 1)
    ]
    everything = torch.cat([one.flatten() for one in each])
    assert len(everything.unique()) == len(everything)
    assert torch.equal(uniforms_at(Draws(0, "train", 1), groups, rows, range(3, 5)), each[1][:, 3:])
    drawn = uniforms_at(Draws(7, "train"), list(range(400)), [0] * 400, range(100))
    counts = torch.histc(drawn, bins=20, min=0, max=1)
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert (counts - 2000).abs().max() < 200
    assert (drawn[:2, :2] * 2**24).int().tolist() == [[7495455, 6830726], [3161313, 16543677]]


def test_tokens_come_as_often_as_their_probability_says_and_those_of_probability_zero_never() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0]).repeat(20_000, 1)
    drawn = uniforms_at(Draws(3, "train"), list(range(20_000)), [0] * 20_000, range(1))[:, 0]
    chosen = choose(logits / 0.8, drawn)
    measured = torch.bincount(chosen, minlength=4) / 20_000
    assert (measured - (logits[0] / 0.8).softmax(-1)).abs().max() < 0.01
    logits = torch.full((3, 10), float("-inf"))
    logits[:, 4] = 0.0
    assert choose(logits, torch.tensor([0.0, 0.5, 1 - 2.0**-24])).tolist() == [4, 4, 4]


def test_top_k_and_top_p_keep_the_likeliest() -> None:
    logits = torch.tensor([[0.5, 0.2, 0.15, 0.1, 0.05]]).log()
    assert truncate(logits, top_k=2, top_p=1.0).isfinite().tolist() == [[True, True, False, False, False]]
    assert truncate(logits, top_k=0, top_p=0.6).isfinite().tolist() == [[True, True, False, False, False]]
    assert truncate(logits, top_k=0, top_p=0.01).isfinite().tolist() == [[True, False, False, False, False]]


MOST = pytest.mark.parametrize("most", [choice._LIKELIEST, 10**6], ids=["the likeliest first", "whole rows"])


@MOST
@pytest.mark.parametrize("spread", [0.01, 1.0, 6.0], ids=["flat", "as at random", "peaked"])
@pytest.mark.parametrize("vocabulary", [3, 700, 5000])
def test_the_likeliest_that_make_up_p_are_those_of_its_definition(most: int, spread: float, vocabulary: int) -> None:
    logits = spread * torch.randn(6, vocabulary, generator=torch.Generator().manual_seed(vocabulary))
    logits[1, 1:] = float("-inf")  # one token alone
    logits[2, :2] = 40.0  # two equally likely ones
    for top_p in (1e-6, 0.3, 0.9, 0.999):
        kept = logits >= choice._edge(logits, top_p, most)
        for row, of_row in zip(logits.double().softmax(-1), kept, strict=True):
            assert row[of_row].sum() >= top_p - 1e-6  # of float32
            assert row[row > row[of_row].min()].sum() < top_p + 1e-6


@MOST
def test_large_logits_keep_as_many_tokens_as_small_ones_and_a_p_that_rounds_to_zero_the_likeliest(most: int) -> None:
    small = -0.25 * torch.arange(3000.0)[None]
    for top_p in (0.5, 0.9, 0.9999):
        expected = small >= choice._edge(small, top_p, most)
        assert torch.equal(small + 2.0**20 >= choice._edge(small + 2.0**20, top_p, most), expected)
    assert choice._edge(small, 1e-60, most).tolist() == [[0.0]]


def test_a_row_that_is_alone_is_added_up_as_rows_beside_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, add_up = list[int](), Tensor.cumsum
    monkeypatch.setitem(device._ABILITIES, "cpu", replace(device._ABILITIES["cpu"], asynchronous=True))
    monkeypatch.setattr(Tensor, "cumsum", lambda self, dim: rows.append(len(self)) or add_up(self, dim))
    shares = torch.rand(1, 50, generator=torch.Generator().manual_seed(0)).softmax(-1)
    drawn = [int(choice.invert(shares, torch.tensor([place / 40]))) for place in range(40)]
    assert drawn == choice.invert(shares.expand(40, -1), torch.arange(40) / 40).tolist()
    assert min(rows) == 2


def test_completions_end_at_the_end_token_a_stop_text_or_the_limit() -> None:
    policy = tiny_policy(reference=False)
    short = roll_out(policy, GrpoConfig(sampling=Sampling(prompts_per_step=2, group_size=2, max_new_tokens=5)))
    assert {completion.finish_reason for completion in short.completions_R} == {"length"}
    assert {len(completion.ids) for completion in short.completions_R} == {5}
    whole = roll_out(policy, CONFIG).completions_R
    assert {completion.finish_reason for completion in whole} == {"stop"}
    assert all(completion.ids[-1] == 257 and 257 not in completion.ids[:-1] for completion in whole)
    for completion in NativeEngine(policy).sample(ask(policy, 2, 2, Draws(0, "train"), stop=["</think>"])):
        assert completion.text.endswith("</think>")
        assert completion.finish_reason == "stop"


@pytest.mark.parametrize("fast", [True, False])
def test_greedy_takes_the_likeliest_token_as_transformers_does(fast: bool) -> None:
    policy = tiny_policy(reference=False, fast=fast)
    asked = ask(policy, 1, 1, None)
    [prompt], [mine] = asked.prompts_P, NativeEngine(policy).sample(asked)
    theirs = policy.model.generate(  # type: ignore[operator]
        torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)), max_new_tokens=48, do_sample=False
    )
    assert mine.ids == theirs[0, len(prompt) :].tolist()


def test_a_prompt_beyond_the_context_is_refused_with_the_numbers() -> None:
    with pytest.raises(RunFailure, match=r"250 tokens and 10 new ones exceed the model's context of 256"):
        NativeEngine(random_policy()).sample(Request([[1] * 250], 2, Decoding(max_new_tokens=10), draws=None))


def test_while_the_policy_is_trained_a_cpu_keeps_no_logits_and_keys_and_values_take_half_as_much_once_memory_ran_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, token_bytes = NativeEngine(tiny_policy(reference=False)), 2 * 4 * 128 * 4
    monkeypatch.setattr(sampler, "cache_bytes", lambda device, promised: 8 * 32 * token_bytes)
    request = Request([[5]], 8, Decoding(max_new_tokens=4, top_k=5), Draws(0, "train"), "renormalized")
    counts = []
    for _ in range(3):
        engine.sample(request)
        assert engine._slots is not None
        assert engine._slots.allowed is None
        counts.append(engine._slots.count)
        assert engine.make_room()
        assert not engine.make_room()  # nothing is held
    assert counts == [8, 4, 2]
