"""Log-probabilities rest on nothing but the model: not on padding, order, or company in the batch."""

import pytest
import torch
from test_learner import gradients
from worker_models import CPU, random_policy, roll_out, tiny_policy

from backend.contract.grpo import GrpoConfig
from backend.contract.training import Sampling
from worker.policy.logprobs import Path, TokenBatch, TrainingPass
from worker.policy.policy import Policy

PROMPTS = [[5, 6, 7], [9], [1, 2, 3, 4, 5, 6, 7, 8, 9], [5, 6, 7]]
COMPLETIONS = [[10, 11, 12, 13], [14, 15], [16], [17, 18, 19]]


def by(path: Path, policy: Policy) -> TrainingPass:
    """A pass that takes this path and no other."""
    chosen = TrainingPass(policy.model, recompute=False, remark=policy.remarks.append)
    chosen._paths = [path] if path != "plain" else []
    return chosen


def plain(
    policy: Policy, prompt: list[int], completion: list[int], temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probs and entropies of one row alone, through transformers, without any padding."""
    with torch.no_grad():
        logits = policy.model(input_ids=torch.tensor([prompt + completion])).logits[0, len(prompt) - 1 : -1].float()
    over = torch.distributions.Categorical(logits=logits / temperature)
    return over.log_prob(torch.tensor(completion)), over.entropy()


@pytest.mark.parametrize("path", ["packed", "rows", "plain"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_mixed_lengths_equal_a_plain_forward_of_each_row(temperature: float, path: Path) -> None:
    policy = random_policy(dtype=torch.float32)
    batch = TokenBatch.of(PROMPTS, COMPLETIONS, CPU)
    assert len(batch.packing.counts_U) == 3
    chosen = by(path, policy)
    with torch.no_grad():
        values = chosen(batch, temperature=temperature)
    assert chosen.path == path
    for row, (prompt, completion) in enumerate(zip(PROMPTS, COMPLETIONS, strict=True)):
        logprobs, entropies = plain(policy, prompt, completion, temperature)
        assert (values.logprob_R_T[row, : len(completion)] - logprobs).abs().max() < 1e-4
        assert (values.entropy_R_T[row, : len(completion)] - entropies).abs().max() < 1e-5
        assert not values.logprob_R_T[row, len(completion) :].any()


def test_what_the_sampler_saw_equals_a_plain_forward_with_shared_prompts() -> None:
    policy = tiny_policy(reference=False)
    rollout = roll_out(policy, GrpoConfig(sampling=Sampling(prompts_per_step=3, group_size=5, temperature=1.3)))
    for row, completion in enumerate(rollout.completions_R):
        expected, _ = plain(policy, rollout.prompt_of(row), completion.ids, 1.3)
        assert (torch.tensor(completion.logprobs) - expected).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("prompts", "completions"),
    [([[], []], [[3, 4], [5]]), ([[1, 2], []], [[3, 4], [5]]), ([[1], [2]], [[3, 4], []])],
    ids=["no prompt", "one prompt empty", "one completion empty"],
)
def test_what_has_no_tokens_is_refused_before_it_is_computed(
    prompts: list[list[int]], completions: list[list[int]]
) -> None:
    with pytest.raises(ValueError, match="no tokens"):
        random_policy().logprobs(TokenBatch.of(prompts, completions, CPU), temperature=1.0)


def test_a_model_that_gives_more_logits_than_asked_for_is_no_reason_to_give_up_a_fast_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = tiny_policy(reference=False)
    forward = policy.model.forward
    # As xLSTM's, which takes arguments that it does not know.
    monkeypatch.setattr(policy.model, "forward", lambda *, logits_to_keep=0, **given: forward(**given))
    policy.logprobs(TokenBatch.of(PROMPTS, COMPLETIONS, CPU), temperature=1.0)
    assert policy.packs
    assert not policy.remarks


def test_the_reference_is_the_weights_at_step_0_and_to_look_through_it_leaves_the_policy_as_it_was() -> None:
    policy = tiny_policy()
    batch = TokenBatch.of([[259, 48]], [[261, 50]], CPU)
    before = policy.reference_logprobs(batch, temperature=1.0).logprob_R_T
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(1.01)
    weights = [parameter.detach().clone() for parameter in policy.parameters()]
    own = policy.logprobs(batch, temperature=1.0).logprob_R_T
    assert not torch.equal(own, before)
    assert torch.equal(policy.reference_logprobs(batch, temperature=1.0).logprob_R_T, before)
    assert all(map(torch.equal, policy.parameters(), weights))
    assert torch.equal(policy.logprobs(batch, temperature=1.0).logprob_R_T, own)


def test_no_path_changes_a_gradient() -> None:
    found = []
    paths: list[Path] = ["packed", "rows", "plain"]
    for path in paths:
        policy = random_policy()
        batch = TokenBatch.of(PROMPTS, COMPLETIONS, CPU)
        values = by(path, policy)(batch, temperature=0.9)
        (values.logprob_R_T * torch.arange(16).reshape(4, 4) + values.entropy_R_T).sum().backward()
        found.append(gradients(policy))
    assert torch.allclose(found[0], found[2], rtol=1e-4, atol=1e-6)
    assert torch.allclose(found[1], found[2], rtol=1e-4, atol=1e-6)
