"""The sampling engine."""

import numpy as np
import pytest
import torch
from worker_models import items, random_policy, roll_out, tiny_policy

from backend.contract.grpo import GrpoConfig
from backend.contract.training import Decoding, Sampling
from worker.errors import RunFailure
from worker.rollout import sampler
from worker.rollout.choice import choose, truncate
from worker.rollout.draws import Draws
from worker.rollout.sampler import NativeEngine

CONFIG = GrpoConfig(sampling=Sampling(prompts_per_step=4, group_size=4))


def test_a_completion_does_not_depend_on_the_company_in_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = tiny_policy(reference=False)
    together = [completion.ids for completion in roll_out(policy, CONFIG).completions_R]
    monkeypatch.setattr(sampler, "_TOKENS_IN_FLIGHT", 1)  # every group in a batch of its own
    assert [completion.ids for completion in roll_out(policy, CONFIG).completions_R] == together


def test_every_step_seed_and_completion_draws_anew() -> None:
    groups, rows = np.array([0, 0, 1]), np.array([0, 1, 0])
    drawn = [
        Draws(seed, stream, step).uniforms(groups, rows, 0, 5)
        for seed in (0, 1)
        for stream in ("train", "eval", "sample")
        for step in (0, 1)
    ]
    everything = np.concatenate([one.ravel() for one in drawn])
    assert len(np.unique(everything)) == len(everything)
    assert np.array_equal(Draws(0, "train", 1).uniforms(groups, rows, 3, 2), drawn[1][:, 3:])


def test_draws_are_uniform() -> None:
    drawn = Draws(7, "train").uniforms(np.arange(400), np.zeros(400, dtype=np.int64), 0, 100)
    counts, _ = np.histogram(drawn, bins=20, range=(0, 1))
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert abs(counts - 2000).max() < 200


def test_tokens_come_as_often_as_their_probability_says() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0]).repeat(20_000, 1)
    uniforms = torch.from_numpy(Draws(3, "train").uniforms(np.arange(20_000), np.zeros(20_000, dtype=np.int64), 0, 1))[
        :, 0
    ]
    chosen = choose(logits / 0.8, uniforms)
    measured = torch.bincount(chosen, minlength=4) / 20_000
    assert (measured - (logits[0] / 0.8).softmax(-1)).abs().max() < 0.01


def test_top_k_and_top_p_keep_the_likeliest() -> None:
    logits = torch.tensor([[0.5, 0.2, 0.15, 0.1, 0.05]]).log()
    assert truncate(logits, top_k=2, top_p=1.0).isfinite().tolist() == [[True, True, False, False, False]]
    assert truncate(logits, top_k=0, top_p=0.6).isfinite().tolist() == [[True, True, False, False, False]]
    assert truncate(logits, top_k=0, top_p=0.01).isfinite().tolist() == [[True, False, False, False, False]]


def test_a_token_of_probability_zero_is_never_chosen() -> None:
    logits = torch.full((3, 10), float("-inf"))
    logits[:, 4] = 0.0
    uniforms = torch.tensor([0.0, 0.5, 1 - 2.0**-24])
    assert choose(logits, uniforms).tolist() == [4, 4, 4]


def test_completions_end_at_the_end_token_or_the_limit() -> None:
    policy = tiny_policy(reference=False)
    short = roll_out(policy, GrpoConfig(sampling=Sampling(prompts_per_step=2, group_size=2, max_new_tokens=5)))
    assert {completion.finish_reason for completion in short.completions_R} == {"length"}
    assert {len(completion.ids) for completion in short.completions_R} == {5}
    whole = roll_out(policy, CONFIG).completions_R
    assert {completion.finish_reason for completion in whole} == {"stop"}
    assert all(completion.ids[-1] == 257 and 257 not in completion.ids[:-1] for completion in whole)


def test_a_stop_text_ends_a_completion() -> None:
    policy = tiny_policy(reference=False)
    prompts = [policy.encode(item)[1] for item in items(2)]
    for completion in NativeEngine(policy).sample(
        prompts, group_size=2, decoding=Decoding(stop=["</think>"]), draws=Draws(0, "train")
    ):
        assert completion.text.endswith("</think>")
        assert completion.finish_reason == "stop"


def test_greedy_takes_the_likeliest_token_as_transformers_does() -> None:
    policy = tiny_policy(reference=False)
    prompt = policy.encode(items(1)[0])[1]
    mine = NativeEngine(policy).sample([prompt], group_size=1, decoding=Decoding(), draws=None)[0]
    theirs = policy.model.generate(  # type: ignore[operator]
        torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)), max_new_tokens=48, do_sample=False
    )
    assert mine.ids == theirs[0, len(prompt) :].tolist()


def test_a_prompt_beyond_the_context_is_refused_with_the_numbers() -> None:
    with pytest.raises(RunFailure, match=r"250 tokens and 10 new ones exceed the model's context of 256"):
        NativeEngine(random_policy()).sample(
            [[1] * 250], group_size=2, decoding=Decoding(max_new_tokens=10), draws=None
        )
