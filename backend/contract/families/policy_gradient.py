"""What GRPO descends from and is set against: the policy gradient, its baselines, and a critic."""

from backend.contract.advantage import (
    BatchBaseline,
    Gae,
    LeaveOneOut,
)
from backend.contract.algorithm import Algorithm, Kl
from backend.contract.catalog import RecipeCard
from backend.contract.families.card import on_the_quickstart
from backend.contract.surrogate import PolicyGradient

CARDS: tuple[RecipeCard, ...] = (
    on_the_quickstart(
        "reinforce",
        "REINFORCE",
        "The vanilla policy gradient: log-likelihood times reward, less the batch's mean.",
        "To see what the group adds: easy and hard prompts share one baseline here.",
        "The vanilla policy gradient; Williams (1992)",
        r"\mathcal L=-\tfrac1R\sum_i\big(r_i-\bar r_\mathrm{batch}\big)\log\pi(o_i)",
        Algorithm(advantage=BatchBaseline(), surrogate=PolicyGradient(), kl=Kl(beta=0), aggregation="sequence_sum"),
    ),
    on_the_quickstart(
        "rloo",
        "RLOO",
        "REINFORCE, each completion against the mean of its siblings, with the KL taken off the reward.",
        "A plain and strong baseline: unbiased, nothing to clip.",
        "REINFORCE leave-one-out (arXiv:2402.14740)",
        r"\begin{aligned}R_i&=r_i-\beta\log\tfrac{\pi(o_i)}{\pi_\mathrm{ref}(o_i)},\quad A_i=R_i-\tfrac1{G-1}\sum_{j\ne i}R_j\\ \mathcal L&=-\tfrac1G\sum_i A_i\,\log\pi(o_i)\end{aligned}",
        Algorithm(
            advantage=LeaveOneOut(),
            surrogate=PolicyGradient(),
            kl=Kl(beta=0.05, estimator="k1", placement="reward"),
            aggregation="sequence_sum",
        ),
    ),
    on_the_quickstart(
        "ppo",
        "PPO",
        "A value head learns what to expect of every token; GAE compares with it. The group plays no part.",
        "To see what GRPO leaves out, and what it costs: another head, another loss, three more settings.",
        "PPO (arXiv:1707.06347) with GAE (arXiv:1506.02438); reward on the last token, k1 KL in the reward",
        r"\begin{aligned}\delta_t&=r_t+\gamma V_{t+1}-V_t,\quad A_t=\delta_t+\gamma\lambda A_{t+1}\\ \mathcal L&=\mathbb E_t\big[-\min(\rho_tA_t,\operatorname{clip}(\rho_t,0.8,1.2)A_t)\\ &\qquad+c_1(V_t-V_t^\mathrm{target})^2-c_2H_t\big]\end{aligned}",
        Algorithm(
            advantage=Gae(),
            kl=Kl(beta=0.04, estimator="k1", placement="reward"),
            aggregation="token_mean",
            entropy_bonus=0.001,
            updates_per_batch=2,
        ),
    ),
)
