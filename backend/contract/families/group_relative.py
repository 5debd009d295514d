"""Other ways to compare a completion with its group."""

from backend.contract.advantage import (
    GroupCenter,
    Softmax,
)
from backend.contract.algorithm import Algorithm, Kl
from backend.contract.catalog import RecipeCard
from backend.contract.families.card import QUICKSTART_OPTIMIZER, card, on_the_quickstart
from backend.contract.grpo import GrpoConfig
from backend.contract.reward import Correctness, Format, Length, Rewards
from backend.contract.surrogate import Clip, PolicyGradient
from backend.contract.training import Budget, Sampling

LIMIT, CACHE = Sampling().max_new_tokens, 12
# DAPO's soft punishment is 0 up to CACHE tokens below the limit and falls to −1 at the limit.
OVERLONG = Length(name="overlong", weight=-1.0, minimum=LIMIT, maximum=1_000_000, ramp=CACHE)

CARDS: tuple[RecipeCard, ...] = (
    on_the_quickstart(
        "group-wise-softmax",
        "Group-wise softmax",
        "Each completion's log-likelihood, weighted by the softmax of the group's rewards: no completion is pushed down.",
        "To see what a centred advantage is good for. Most of each weight is the same for all completions and only adds noise; it trails the z-score by little.",
        "The tutorial “Understanding Group-wise Policy Optimization”, section 2",
        r"\begin{aligned}w_i&=\frac{e^{r_i}}{\sum_j e^{r_j}}\\ \mathcal L&=-\sum_i w_i\,\log\pi(o_i)\end{aligned}",
        Algorithm(advantage=Softmax(), surrogate=PolicyGradient(), kl=Kl(beta=0), aggregation="group_sum"),
    ),
    on_the_quickstart(
        "group-wise-softmax-clip",
        "Group-wise softmax, stabilised",
        "The softmax weights under PPO's clipped ratio, with a KL penalty.",
        "When these weights are to train with several updates on each batch.",
        "The tutorial “Understanding Group-wise Policy Optimization”, section 4",
        r"\begin{aligned}w_i&=\frac{e^{r_i}}{\sum_j e^{r_j}}\\ \mathcal L&=-\sum_i\sum_t\min\!\big(\rho_{i,t}w_i,\ \operatorname{clip}(\rho_{i,t},0.8,1.2)\,w_i\big)+\beta\,\mathrm{KL}\end{aligned}",
        # Softmax weights of rewards from 0 to 1 differ by about 0.1 where z-scores differ by 2: β is smaller by as much.
        Algorithm(advantage=Softmax(), kl=Kl(beta=0.005), aggregation="group_sum", updates_per_batch=2),
    ),
    on_the_quickstart(
        "dr-grpo",
        "Dr. GRPO",
        "No division by the group's std or the completion's length, which favour hard prompts and long wrong answers.",
        "When completions grow longer and longer without getting better.",
        "Dr. GRPO (arXiv:2503.20783)",
        r"\begin{aligned}\hat A_i&=r_i-\operatorname{mean}(r)\\ \mathcal L&=-\tfrac1{G\,L_{\max}}\sum_i\sum_t\min\!\big(\rho_{i,t}\hat A_i,\ \operatorname{clip}(\rho_{i,t},0.8,1.2)\,\hat A_i\big)\end{aligned}",
        Algorithm(advantage=GroupCenter(), kl=Kl(beta=0), aggregation="constant"),
    ),
    card(
        "dapo",
        "DAPO",
        "Dead groups are sampled again, the upper clip is wider, each token counts once, overlong answers cost.",
        "When many groups are dead, or the entropy collapses.",
        "DAPO (arXiv:2503.14476): ε 0.2 and 0.28, no KL",
        r"\begin{aligned}\hat A_i&=\frac{r_i-\operatorname{mean}(r)}{\operatorname{std}(r)+\epsilon},\quad 0<\operatorname{std}(r)\\ \mathcal L&=-\tfrac1{\sum_i|o_i|}\sum_i\sum_t\min\!\big(\rho_{i,t}\hat A_i,\ \operatorname{clip}(\rho_{i,t},0.8,1.28)\,\hat A_i\big)\end{aligned}",
        GrpoConfig(
            rewards=Rewards(
                functions=[
                    Correctness(name="correctness", weight=0.9),
                    Format(name="format", weight=0.1),
                    OVERLONG,
                ]
            ),
            algorithm=Algorithm(
                surrogate=Clip(epsilon_low=0.2, epsilon_high=0.28),
                kl=Kl(beta=0),
                aggregation="token_mean",
                updates_per_batch=2,
                dead_groups="resample",
            ),
            optimizer=QUICKSTART_OPTIMIZER,
            budget=Budget(eval_samples=4),
        ),
    ),
)
