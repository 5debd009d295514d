"""Loss, gradient, metrics and advantages equal TRL's own code, where the definitions meet: no empty row, one micro-batch,
one optimizer step per generation. TRL's methods run on a bare trainer that holds just the attributes they read."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor
from trl_cases import CASES, SETTINGS

from backend.contract.advantage import Advantage, BatchStd, GroupCenter, GroupZscore, NormalizeThenSum
from backend.contract.algorithm import Algorithm
from worker.algorithms.estimator import estimate
from worker.algorithms.objective import TokenTerms, token_terms, token_weights

pytestmark = pytest.mark.slow  # importing TRL takes seconds

SEEDS = range(50)
ROWS, WIDTH, MAX_NEW_TOKENS = 8, 12, 16
STEP = torch.finfo(torch.float32).eps
AS_CONFIGURED = """
    loss_type importance_sampling_level beta max_completion_length off_policy_mask_threshold top_entropy_quantile use_vllm
    vllm_importance_sampling_correction num_generations num_iterations multi_objective_aggregation scale_rewards
    mask_truncated_completions pad_to_multiple_of
""".split()


@dataclass(frozen=True)
class Batch:
    """Rows of 1 to 12 tokens, ratios well away from 1, advantages of both signs and one 0."""

    logprob: Tensor
    old: Tensor
    reference: Tensor
    advantages: Tensor
    mask: Tensor

    @classmethod
    def draw(cls, seed: int) -> "Batch":
        generator = torch.Generator().manual_seed(seed)

        def normal() -> Tensor:
            return torch.randn(ROWS, WIDTH, generator=generator)

        lengths = torch.randint(1, WIDTH + 1, (ROWS,), generator=generator)
        old = -0.1 - 2 * normal().abs()
        advantages = torch.randn(ROWS, generator=generator)
        advantages[seed % ROWS] = 0.0
        mask = (torch.arange(WIDTH) < lengths[:, None]).float()
        return cls((old + 0.4 * normal()), old, old + 0.4 * normal(), advantages, mask)


if TYPE_CHECKING:
    from trl import GRPOTrainer

Bare = Callable[..., "GRPOTrainer"]


@pytest.fixture(scope="module")
def bare_trainer(tmp_path_factory: pytest.TempPathFactory) -> Bare:
    """Makes a GRPOTrainer without model or data, which holds TRL's real configuration."""
    # Imported here, so that collecting this file for the fast tests does not cost seconds.
    from accelerate import Accelerator
    from trl import GRPOConfig, GRPOTrainer

    folder: Path = tmp_path_factory.mktemp("trl")

    def make(**settings: object) -> "GRPOTrainer":
        config = GRPOConfig(
            output_dir=str(folder),
            max_completion_length=MAX_NEW_TOKENS,
            per_device_train_batch_size=ROWS,
            num_generations=4,
            **SETTINGS | settings,
        )
        trainer = object.__new__(GRPOTrainer)
        model = torch.nn.Identity()
        model.is_gradient_checkpointing = False
        vars(trainer).update(
            args=config,
            accelerator=Accelerator(cpu=True),  # after the configuration, which resets its state
            model=model,
            epsilon_low=config.epsilon,
            epsilon_high=config.epsilon if config.epsilon_high is None else config.epsilon_high,
            current_gradient_accumulation_steps=1,
            aux_loss_enabled=False,
            _entropy_bonus_enabled=False,
            _metrics={"train": defaultdict(list)},
            _logs={"prompt": [], "completion": [], "rewards": defaultdict(list), "advantages": []},
            _pending_extra_logs={},
            _pending_metrics={},
            _tokenizer=SimpleNamespace(pad_token_id=0),
            environment_factories=None,
            environments=None,
            tools=None,
            **{name: getattr(config, name) for name in AS_CONFIGURED},
        )
        return trainer

    return make


def trl_loss(trainer: "GRPOTrainer", batch: Batch) -> tuple[Tensor, Tensor]:
    """TRL's loss and its gradient with respect to the log-probs."""
    leaf = batch.logprob.clone().requires_grad_()
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (leaf, torch.zeros_like(leaf), None)
    tokens = torch.ones(ROWS, WIDTH, dtype=torch.long)
    inputs = {
        "prompt_ids": tokens[:, :1],
        "prompt_mask": tokens[:, :1],
        "completion_ids": tokens,
        "completion_mask": batch.mask,
        "advantages": batch.advantages,
        "old_per_token_logps": batch.old,
        "ref_per_token_logps": batch.reference,
        "num_items_in_batch": batch.mask.sum(),
    }
    loss = trainer._compute_loss(trainer.model, inputs)
    loss.backward()
    return loss.detach(), leaf.grad


def weights_of(algorithm: Algorithm, batch: Batch) -> Tensor:
    return token_weights(batch.mask, aggregation=algorithm.aggregation, max_new_tokens=MAX_NEW_TOKENS)


def our_loss(algorithm: Algorithm, batch: Batch) -> tuple[Tensor, Tensor, TokenTerms]:
    leaf = batch.logprob.clone().requires_grad_()
    terms = token_terms(
        algorithm,
        logprob_R_T=leaf,
        old_logprob_R_T=batch.old,
        advantages_R_T=batch.advantages[:, None],
        mask_R_T=batch.mask,
        reference_logprob_R_T=batch.reference,
    )
    loss = (weights_of(algorithm, batch) * terms.loss_R_T).sum()
    loss.backward()
    return loss.detach(), leaf.grad, terms


@pytest.mark.parametrize("name", CASES)
def test_loss_gradient_and_metrics_equal_trls(name: str, bare_trainer: Bare) -> None:
    case = CASES[name]
    trainer, clipped = bare_trainer(**case.trl), 0
    for seed in SEEDS:
        batch = Batch.draw(seed)
        expected_loss, expected_gradient = trl_loss(trainer, batch)
        loss, gradient, terms = our_loss(case.ours, batch)
        # Beside the relative 1e-5 there is only float32's own step, of the terms where they cancel in the sum.
        scale = float((weights_of(case.ours, batch) * terms.loss_R_T.detach().abs()).sum())
        torch.testing.assert_close(loss, expected_loss, rtol=1e-5, atol=STEP * scale)
        torch.testing.assert_close(gradient, expected_gradient, rtol=1e-5, atol=STEP * float(gradient.abs().max()))
        for metric, part in case.metrics.items():
            mean = (getattr(terms, part).detach() * batch.mask).sum() / batch.mask.sum()
            assert float(mean) == pytest.approx(trainer._metrics["train"][metric][-1], rel=1e-5), metric
        clipped += int(terms.high_R_T.sum())
    assert clipped > 50 or name not in ("grpo", "cispo", "gspo"), "without clipping this says nothing about it"


def trl_advantages(trainer: "GRPOTrainer", rewards_by_function: Tensor, weights: Tensor) -> Tensor:
    """What TRL's own code makes of rewards, (rows, functions)."""
    rows, functions = rewards_by_function.shape
    names = [f"reward {k}" for k in range(functions)]
    completions = [[1]] * rows
    trainer.reward_weights, trainer.reward_funcs, trainer.reward_func_names = weights, names, names
    trainer._generate = lambda _: (completions, completions, None, [""] * rows, None, {}, None, None)
    trainer._calculate_rewards = lambda *_: rewards_by_function
    return trainer._generate_and_score_completions([{"prompt": ""}] * rows)["advantages"]


@pytest.mark.parametrize(
    ("settings", "chosen"),
    [
        ({"scale_rewards": "group"}, GroupZscore(std="sample", eps=1e-4)),
        ({"scale_rewards": "batch"}, BatchStd()),
        ({"scale_rewards": "none"}, GroupCenter()),
        ({"multi_objective_aggregation": "normalize_then_sum"}, NormalizeThenSum()),
    ],
    ids=lambda value: value.kind if not isinstance(value, dict) else "",
)
def test_advantages_equal_trls(settings: dict[str, object], chosen: Advantage, bare_trainer: Bare) -> None:
    trainer = bare_trainer(**settings)
    weights = torch.tensor([1.0, 0.5, 2.0])
    for seed in SEEDS:
        components = torch.rand(2, 4, 3, generator=torch.Generator().manual_seed(seed))
        components[0, seed % 4] = torch.nan  # nothing could score this completion
        components[1, seed % 4, seed % 3] = torch.nan  # one function returned None: the others count
        expected = trl_advantages(trainer, components.reshape(8, 3).clone(), weights)
        rewards = torch.where(components.isnan().all(-1), torch.nan, (components * weights).nansum(-1))
        ours = estimate(chosen, rewards, components_P_G_K=components, weights_K=weights, partial=True)
        torch.testing.assert_close(ours.advantages_P_G.flatten(), expected, rtol=1e-5, atol=1e-6)
