"""Where no group teaches anything, a run leaves its weights exactly as they were, and says so."""

from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from test_bfloat16 import dimensions
from test_learner import train as update_on
from transformers import LlamaConfig, LlamaForCausalLM
from witness import Witness, configured, train
from worker_models import CPU, roll_out, tiny_policy

from backend.catalog import SHAPES
from backend.contract.recipes import SMOLLM2
from worker.learner import Learner
from worker.policy.loading import load_policy
from worker.policy.policy import Policy
from worker.policy.sources import TINY_ARITHMETIC, resolve

EQUAL_REWARDS = {"functions": [{"kind": "pattern", "name": "anything", "syntax": "regex", "patterns": [".*"]}]}
ADAPTERS = {"lora": {"rank": 4, "alpha": 8}}


def weights(policy: Policy) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in policy.named_parameters()}


def differing(before: dict[str, torch.Tensor], policy: Policy) -> list[str]:
    return [name for name, parameter in policy.named_parameters() if not torch.equal(before[name], parameter)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", [{}, pytest.param(ADAPTERS, marks=pytest.mark.thorough)], ids=["all weights", "adapters"]
)
def test_ten_steps_of_dead_groups_with_a_kl_penalty_leave_every_weight_bit_equal(
    tmp_path: Path, model: dict[str, object]
) -> None:
    config = configured(
        model=model,
        rewards=EQUAL_REWARDS,
        algorithm={"kl": {"beta": 0.04}},
        sampling={"prompts_per_step": 3, "group_size": 4, "max_new_tokens": 8},
        budget={"steps": 10, "eval_every": 0, "checkpoint_every": 0},
    )
    source = resolve(TINY_ARITHMETIC, converted=tmp_path, root=None, checkpoint=None)
    before = weights(load_policy(config.model, source, CPU))
    witness = Witness()
    ending, policy = train(config, tmp_path / "store", witness)
    assert ending == "finished"
    assert {group.state for report in witness.steps.values() for group in report.groups} == {"zero_variance"}
    assert {(report.metrics["grad_norm"], report.metrics["kl"]) for report in witness.steps.values()} == {(0.0, 0.0)}
    stayed = [line.message for line in witness.said if "no group had anything to teach" in line.message]
    assert len(stayed) == len(witness.steps) == 10
    assert differing(before, policy) == []


@pytest.mark.slow
def test_what_was_cut_and_left_out_is_named_as_the_reason_why_nothing_was_learned(tmp_path: Path) -> None:
    config = configured(
        rewards={"functions": [{"kind": "pattern", "name": "digits", "syntax": "regex", "patterns": ["[0-4]"]}]},
        algorithm={"truncated_completions": "mask"},
        sampling={"prompts_per_step": 2, "group_size": 4, "max_new_tokens": 3},
        budget={"steps": 1, "eval_every": 0, "checkpoint_every": 0},
    )
    train(config, tmp_path / "store", witness := Witness())
    why = "8 of 8 completions were cut at 3 tokens and left out (truncated_completions: mask), so the weights stayed"
    assert [line.message for line in witness.said if "stayed" in line.message] == [f"step 0: {why}"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tokens", "adapters"),
    [
        pytest.param(64, False, id="many micro-batches-all weights"),
        pytest.param(8192, False, id="one micro-batch-all weights", marks=pytest.mark.thorough),
        pytest.param(64, True, id="many micro-batches-adapters", marks=pytest.mark.thorough),
    ],
)
def test_a_model_as_wide_as_smollm2_keeps_its_weights_in_any_micro_batches(tokens: int, adapters: bool) -> None:
    """Products of these widths are cut into other blocks than those of the shipped model; one layer shows it as thirty do."""
    torch.manual_seed(0)
    shape = SHAPES[SMOLLM2].model_copy(update={"layers": 1})
    model = LlamaForCausalLM(LlamaConfig(**dimensions(shape)))
    if adapters:
        model = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"))
    policy = Policy(model, tiny_policy(reference=False).tokenizer, CPU, "float32")
    if not adapters:
        policy.copy_reference()
    config = configured(
        algorithm={"kl": {"beta": 0.04}},
        sampling={"prompts_per_step": 2, "group_size": 4, "max_new_tokens": 8},
        optimizer={"micro_batch_tokens": tokens, "learning_rate": 1e-3},
    )
    learner, rollout, before = Learner(policy, config), roll_out(policy, config), weights(policy)
    assert (len(learner.split(rollout).micro_batches) > 1) == (tokens == 64)
    for step in range(2):
        update, _ = update_on(learner, rollout, torch.zeros(8).double(), step=step)
        assert (update.applied, update.moved, update.metrics["grad_norm"]) == (True, False, 0.0)
    assert differing(before, policy) == []


@pytest.mark.parametrize(
    ("dead", "kl"),
    [(True, {"beta": 0.04, "reference": "old"}), (False, {"beta": 0.04, "reference": "old"}), (True, {"beta": 0.0})],
    ids=["nothing to learn", "something to learn", "nothing to pass through"],
)
def test_momentum_and_decay_alone_move_no_weight(dead: bool, kl: dict[str, object]) -> None:
    policy = tiny_policy()
    config = configured(
        algorithm={"kl": kl},  # whose gradient is exactly 0 whatever was learned before
        sampling={"prompts_per_step": 2, "group_size": 4, "max_new_tokens": 8},
        optimizer={"learning_rate": 1e-2, "weight_decay": 0.1},
    )
    learner, rollout = Learner(policy, config), roll_out(policy, config)
    signs = torch.tensor([1.0, -1.0, -1.0, 1.0] * 2, dtype=torch.float64)
    for step, advantages_R in enumerate((signs, signs * (not dead))):
        before = weights(policy)
        update, tokens = update_on(learner, rollout, advantages_R, step=step)
    assert (update.applied, update.moved) == (True, not dead)
    if not kl["beta"]:
        assert (update.metrics["loss"], tokens.get("ratio")) == (0.0, None)
    assert bool(differing(before, policy)) == (not dead)
