"""One optimizer step of our learner is one of TRL's own trainer: the same rollout and rewards, real models, float32."""

import copy
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from transformers import LlamaForCausalLM
from trl_cases import CASES, K3, NO_KL, SETTINGS, Case
from worker_models import CPU, items, random_policy, roll_out

from backend.contract.advantage import GroupZscore
from backend.contract.groups import RewardScore
from backend.contract.grpo import GrpoConfig
from backend.contract.training import Optimizer, Sampling
from worker.credit import assign_credit
from worker.learner import Learner
from worker.policy.policy import Policy
from worker.rewards.scoring import Scores
from worker.rollout.engine import Rollout

pytestmark = pytest.mark.slow  # importing TRL takes seconds

GROUP, RATE, TEMPERATURE = 4, 1e-3, 0.9
# Three groups. The second is dead: rows of the embedding that only its tokens have must stay, where rounding would move them by
# whole learning rates.
REWARDS = [1.0, 0.0, 0.5, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.3, 0.7]
LOSSES = [name for name in CASES if "k3" not in name]
ONE_STEP = SETTINGS | {
    "save_strategy": "no",
    "disable_tqdm": True,
    "max_completion_length": 16,
    "per_device_train_batch_size": len(REWARDS),
    "num_generations": GROUP,
    "shuffle_dataset": False,
    "temperature": TEMPERATURE,
    "learning_rate": RATE,
    "lr_scheduler_type": "constant",
    "max_steps": 1,
}


class Start:
    """Weights to begin with, in a folder from which TRL loads its reference."""

    def __init__(self, folder: Path) -> None:
        made = random_policy(300, dtype=torch.float32)
        made.model.save_pretrained(folder)
        self.folder, self.tokenizer = folder, made.tokenizer

    def model(self, *, adapters: bool) -> LlamaForCausalLM:
        model = LlamaForCausalLM.from_pretrained(self.folder, dtype=torch.float32)
        if not adapters:
            return model
        torch.manual_seed(1)
        return get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM"))


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Start:
    return Start(tmp_path_factory.mktemp("start"))


def trained(model: torch.nn.Module) -> Tensor:
    """All weights that are trained, one after the other."""
    return torch.cat([one.detach().flatten() for one in model.parameters() if one.requires_grad]).clone()


def our_update(start: Start, case: Case, *, adapters: bool) -> tuple[Rollout, Tensor]:
    """What we sampled, and by how much a step on it moved the weights."""
    chosen = case.ours.model_copy(update={"advantage": GroupZscore(std="sample", eps=1e-4)})
    sampling = Sampling(prompts_per_step=3, group_size=GROUP, max_new_tokens=16, temperature=TEMPERATURE)
    optimizer = Optimizer(learning_rate=RATE, weight_decay=0.0, max_grad_norm=1.0)
    config = GrpoConfig(algorithm=chosen, sampling=sampling, optimizer=optimizer)
    policy = Policy(start.model(adapters=adapters), start.tokenizer, CPU, "float32")
    if not adapters:
        policy.copy_reference()
    rollout, before = roll_out(policy, config, asked=items(3)), trained(policy.model)
    learner = Learner(policy, config)
    batch = learner.split(rollout)
    learner.measure_before(batch)
    scores = Scores(
        [[RewardScore(name="r", raw=reward, weight=1.0)] for reward in REWARDS], torch.tensor(REWARDS).double().numpy()
    )
    learner.update(0, batch, assign_credit(config, scores, batch.tokens), torch.ones(rollout.rows, dtype=torch.bool))
    return rollout, trained(policy.model) - before


def trl_update(start: Start, case: Case, rollout: Rollout, folder: Path, *, adapters: bool) -> Tensor:
    """By how much one step of TRL's trainer on the same rollout moves the same weights."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    model = start.model(adapters=adapters)
    before = trained(model)
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=lambda completions, **_: REWARDS,
        args=GRPOConfig(output_dir=str(folder), **ONE_STEP, **case.trl),
        train_dataset=Dataset.from_list([{"prompt": text} for text in rollout.prompt_texts_P]),
        processing_class=copy.deepcopy(start.tokenizer),
    )
    prompts = [list(rollout.prompt_of(row)) for row in range(rollout.rows)]
    completions = [list(one.ids) for one in rollout.completions_R]
    texts = [one.text for one in rollout.completions_R]
    trainer._generate = lambda _: (prompts, completions, None, texts, None, {}, None, None)
    trainer.train()
    assert trainer.state.global_step == 1
    return trained(model) - before


def apart(start: Start, folder: Path, name: str, beta: float, *, adapters: bool) -> float:
    """How far the two updates of a loss are apart, as a share of the update."""
    case = Case(CASES[name].trl | {"beta": beta}, CASES[name].ours.model_copy(update={"kl": K3 if beta else NO_KL}))
    rollout, ours = our_update(start, case, adapters=adapters)
    theirs = trl_update(start, case, rollout, folder, adapters=adapters)
    assert theirs.norm() > 0.1 * RATE * len(theirs) ** 0.5
    return float((ours - theirs).norm() / theirs.norm())


@pytest.mark.parametrize("beta", [0.0, 0.04])
@pytest.mark.parametrize("name", LOSSES)
def test_one_optimizer_step_is_trls(name: str, beta: float, start: Start, tmp_path: Path) -> None:
    assert apart(start, tmp_path, name, beta, adapters=False) < 3e-4


@pytest.mark.parametrize("beta", [0.0, 0.04])
def test_one_optimizer_step_of_adapters_is_trls(beta: float, start: Start, tmp_path: Path) -> None:
    assert apart(start, tmp_path, "grpo", beta, adapters=True) < 3e-4
