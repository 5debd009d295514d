"""Other ways to hold a token, or a completion, near the policy that sampled it."""

from backend.contract.algorithm import Algorithm, Kl
from backend.contract.catalog import RecipeCard
from backend.contract.families.card import on_the_quickstart
from backend.contract.surrogate import Cispo, Clip, Sapo, Vespo

CARDS: tuple[RecipeCard, ...] = (
    on_the_quickstart(
        "gspo",
        "GSPO",
        "One ratio for the whole completion, the geometric mean of its tokens' ratios, clipped very narrowly.",
        "For long completions and mixture-of-experts models, where single tokens' ratios are noisy.",
        "GSPO (arXiv:2507.18071), section 5.1: ε 3e-4 and 4e-4, no KL",
        r"\begin{aligned}s_i&=\Big(\tfrac{\pi(o_i)}{\pi_\mathrm{old}(o_i)}\Big)^{1/|o_i|}\\ \mathcal L&=-\tfrac1G\sum_i\min\!\big(s_i\hat A_i,\ \operatorname{clip}(s_i,1-3\mathrm e{-4},1+4\mathrm e{-4})\,\hat A_i\big)\end{aligned}",
        Algorithm(
            surrogate=Clip(epsilon_low=3e-4, epsilon_high=4e-4),
            ratio="sequence_mean",
            kl=Kl(beta=0),
            updates_per_batch=2,
        ),
    ),
    on_the_quickstart(
        "cispo",
        "CISPO",
        "The ratio is capped as a weight, without gradient, so that rare but decisive tokens keep theirs.",
        "When clipping silences the very tokens that change the reasoning.",
        "MiniMax-M1 (arXiv:2506.13585); the cap of 5 is the usual choice, TRL's default of 0.2 caps every token",
        r"\mathcal L=-\tfrac1{\sum_i|o_i|}\sum_i\sum_t\operatorname{sg}\!\big[\min(\rho_{i,t},5)\big]\,\hat A_i\,\log\pi(o_{i,t})",
        Algorithm(surrogate=Cispo(), kl=Kl(beta=0), aggregation="token_mean", updates_per_batch=2),
    ),
    on_the_quickstart(
        "sapo",
        "SAPO",
        "A sigmoid in place of the clip: the further the ratio is from 1, the less a token counts, without an edge.",
        "When clipping makes training jump.",
        "Soft Adaptive Policy Optimization (arXiv:2511.20347): τ 1.0 and 1.05",
        r"\mathcal L=-\tfrac1G\sum_i\tfrac1{|o_i|}\sum_t\tfrac4\tau\,\sigma\!\big(\tau(\rho_{i,t}-1)\big)\,\hat A_i",
        Algorithm(surrogate=Sapo(), kl=Kl(beta=0), updates_per_batch=2),
    ),
    on_the_quickstart(
        "luspo",
        "LUSPO",
        "GSPO's ratio, each completion's term multiplied by its length, so that length does not thin the signal.",
        "When GSPO's completions get shorter without reason.",
        "Length-Unbiased Sequence Policy Optimization (arXiv:2602.05261); ε as in GSPO",
        r"\begin{aligned}s_i&=\Big(\tfrac{\pi(o_i)}{\pi_\mathrm{old}(o_i)}\Big)^{1/|o_i|}\\ \mathcal L&=-\tfrac1G\sum_i|o_i|\,\min\!\big(s_i\hat A_i,\ \operatorname{clip}(s_i,\cdot)\,\hat A_i\big)\end{aligned}",
        Algorithm(
            surrogate=Clip(epsilon_low=3e-4, epsilon_high=4e-4),
            ratio="sequence_mean",
            kl=Kl(beta=0),
            aggregation="sequence_sum",
            updates_per_batch=2,
        ),
    ),
    on_the_quickstart(
        "vespo",
        "VESPO",
        "Whole completions weighed by a smooth curve of their ratio that is 1 on policy and fades on both sides.",
        "For stale data: many updates per batch, or samples from an older policy.",
        "VESPO (arXiv:2602.10693): (k, λ) = (2, 3) and (3, 2)",
        r"\begin{aligned}w_i&=\tfrac{\pi(o_i)}{\pi_\mathrm{old}(o_i)},\quad\varphi(w)=\operatorname{sg}\!\big[e^{\lambda}w^{k}e^{-\lambda w}\big]\\ \mathcal L&=-\tfrac1{\sum_i|o_i|}\sum_i\sum_t\varphi(w_i)\,\hat A_i\,\log\pi(o_{i,t})\end{aligned}",
        Algorithm(
            surrogate=Vespo(), ratio="sequence_product", kl=Kl(beta=0), aggregation="token_mean", updates_per_batch=2
        ),
    ),
)
