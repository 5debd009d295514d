"""Learning from pairs: a better and a worse answer."""

from backend.contract.advantage import (
    BestWorst,
)
from backend.contract.algorithm import Algorithm, Kl
from backend.contract.catalog import RecipeCard
from backend.contract.families.card import card, on_the_quickstart
from backend.contract.preference import DpoBudget, DpoConfig, PairBudget, RewardModelConfig
from backend.contract.surrogate import Dpo
from backend.contract.training import Optimizer

CARDS: tuple[RecipeCard, ...] = (
    on_the_quickstart(
        "dpo-online",
        "Online DPO",
        "The best and the worst completion of each group are a preference pair, made anew in every step.",
        "To see DPO and GRPO on the same groups: G = 2 with one right answer gives them the same direction.",
        "DPO (arXiv:2305.18290) on the policy's own samples (arXiv:2402.04792)",
        r"\mathcal L=-\log\sigma\!\Big(\beta\log\frac{\pi(o_w)}{\pi_\mathrm{ref}(o_w)}-\beta\log\frac{\pi(o_l)}{\pi_\mathrm{ref}(o_l)}\Big)",
        Algorithm(advantage=BestWorst(), surrogate=Dpo(), kl=Kl(beta=0), aggregation="group_sum"),
    ),
    card(
        "dpo",
        "DPO",
        "No reward model and no sampling while it trains: preference pairs alone, stored before the first step.",
        "When you have pairs of good and bad answers, or to see what pairs that are not renewed can teach.",
        "DPO (arXiv:2305.18290); β = 0.1",
        r"\mathcal L=-\log\sigma\!\Big(\beta\log\frac{\pi(y_w)}{\pi_\mathrm{ref}(y_w)}-\beta\log\frac{\pi(y_l)}{\pi_\mathrm{ref}(y_l)}\Big)",
        DpoConfig(
            optimizer=Optimizer(learning_rate=2e-5, warmup_steps=10),
            budget=DpoBudget(steps=100, eval_samples=4),
        ),
    ),
    card(
        "reward-model",
        "Reward model",
        "Learns from preference pairs to score: the chosen completion above the rejected one (Bradley-Terry).",
        "When no function can tell good from bad, but a person can; the run becomes a reward of other runs.",
        "The Bradley-Terry model; InstructGPT (arXiv:2203.02155), equation 1",
        r"\mathcal L=-\log\sigma\!\big(r(x,y_w)-r(x,y_l)\big)",
        RewardModelConfig(
            optimizer=Optimizer(learning_rate=3e-4, warmup_steps=5),
            budget=PairBudget(steps=60, eval_every=20, checkpoint_every=20),
        ),
    ),
)
