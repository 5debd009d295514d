"""Recipes: named starting points. Each is nothing but a choice along the axes, with its source and its formula."""

from backend.contract.advantage import BatchBaseline, BestWorst, Gae, GroupCenter, GroupZscore, LeaveOneOut, Softmax
from backend.contract.algorithm import Algorithm, Kl
from backend.contract.catalog import RecipeCard
from backend.contract.config import TrainingConfig
from backend.contract.grpo import GrpoConfig
from backend.contract.model import Model
from backend.contract.preference import DpoBudget, DpoConfig, PairBudget, RewardModelConfig
from backend.contract.reward import Correctness, Format, Length, Rewards
from backend.contract.surrogate import Cispo, Clip, Dpo, PolicyGradient, Sapo, Vespo
from backend.contract.task import Arithmetic, SinglePrompt
from backend.contract.training import Budget, Optimizer, Sampling

QUICKSTART = "grpo"
SMOLLM2 = "builtin:smollm2-135m-instruct"
# 1e-4 and 2e-4 learn faster, but are done by step 40 and leave little to watch; see docs/experiments.md.
QUICKSTART_OPTIMIZER = Optimizer(learning_rate=5e-5, warmup_steps=10)


def card(
    id: str, title: str, sentence: str, when: str, source: str, formula: str, config: TrainingConfig
) -> RecipeCard:
    """A card whose configuration carries its name; `formula` is LaTeX."""
    named = config.model_copy(update={"recipe": id})
    return RecipeCard(
        id=id,
        title=title,
        sentence=sentence,
        when=when,
        source=source,
        formula=formula,
        config=named.model_dump(mode="json"),
    )


def on_the_quickstart(
    id: str, title: str, sentence: str, when: str, source: str, formula: str, algorithm: Algorithm
) -> RecipeCard:
    """Another algorithm with all other settings of the quickstart, so that runs compare."""
    config = GrpoConfig(algorithm=algorithm, optimizer=QUICKSTART_OPTIMIZER, budget=Budget(eval_samples=4))
    return card(id, title, sentence, when, source, formula, config)


FORMULA = (
    r"\begin{aligned}\hat A_i&=\frac{r_i-\operatorname{mean}(r)}{\operatorname{std}(r)+\epsilon}\\ "
    r"\mathcal L&=-\tfrac1G\sum_i\tfrac1{|o_i|}\sum_t\min\!\big("
    r"\rho_{i,t}\hat A_i,\ \operatorname{clip}(\rho_{i,t},0.8,1.2)\,\hat A_i\big)\\ "
    r"&\quad+\beta\,\mathrm{KL}(\pi\,\|\,\pi_\mathrm{ref})\end{aligned}"
)

START: tuple[RecipeCard, ...] = (
    card(
        "grpo",
        "GRPO",
        "Group z-score, clipped ratio, KL to the initial weights: the algorithm as DeepSeekMath published it.",
        "Start here: the small arithmetic model learns operator precedence in minutes, on any machine.",
        "DeepSeekMath (arXiv:2402.03300), equations 3 and 4; β = 0.04, ε = 0.2",
        FORMULA,
        GrpoConfig(optimizer=QUICKSTART_OPTIMIZER, budget=Budget(eval_samples=4)),
    ),
    card(
        "smollm2-arithmetic",
        "GRPO on SmolLM2",
        "A real pretrained chat model of 135 million parameters learns to answer “What is a + b?”.",
        "When you want to see a real language model learn on a laptop: 40 steps of about 4 seconds on two idle CPU cores.",
        "DeepSeekMath (arXiv:2402.03300), as in the recipe GRPO; AdamW at 1e-5",
        FORMULA,
        GrpoConfig(
            model=Model(source=SMOLLM2),
            task=Arithmetic(
                operands=2, low=1, high=20, operators=["+"], precedence=False, template="What is {expression}?"
            ),
            rewards=Rewards(functions=[Correctness(name="correctness", extract="last_number", match="numeric")]),
            sampling=Sampling(prompts_per_step=4, group_size=8, max_new_tokens=24),
            optimizer=Optimizer(learning_rate=1e-5),
            budget=Budget(steps=40, eval_every=20, eval_items=40, checkpoint_every=20),
        ),
    ),
    card(
        "grpo-notebook",
        "GRPO, minimal",
        "One prompt drawn twice: two groups of four completions, one token each, reward 1 or 0. GRPO small enough to check every number by hand.",
        "To follow the whole calculation on SmolLM2. Most groups are dead: all four answers are wrong, or all are right.",
        "A tutorial's settings: population std, k1 KL to the old policy, top-k 10, temperature 0.7, log-probs at temperature 1",
        r"\begin{aligned}\rho_i&=\frac{\pi(o_i)}{\pi_\mathrm{old}(o_i)},\quad\hat A_i=\frac{r_i-\operatorname{mean}(r)}{\operatorname{std}(r)+\epsilon}\\ \mathcal L&=-\tfrac1G\sum_i\min\!\big(\rho_i\hat A_i,\ \operatorname{clip}(\rho_i,0.8,1.2)\,\hat A_i\big)\\ &\quad+\beta\,(\log\pi-\log\pi_\mathrm{old})\end{aligned}",
        GrpoConfig(
            model=Model(source=SMOLLM2),
            task=SinglePrompt(prompt_format="raw"),
            rewards=Rewards(functions=[Correctness(name="exact_match", extract="whole", match="exact")]),
            sampling=Sampling(prompts_per_step=2, group_size=4, max_new_tokens=1, temperature=0.7, top_k=10),
            algorithm=Algorithm(
                advantage=GroupZscore(std="population", eps=1e-8),
                ratio="sequence_product",
                kl=Kl(beta=0.04, estimator="k1", reference="old"),
                logprobs="plain",
            ),
            optimizer=Optimizer(learning_rate=1e-5),
            budget=Budget(steps=20, eval_every=10, eval_items=1, eval_samples=16, checkpoint_every=10),
        ),
    ),
)
"""Where to start: GRPO on the small model, on a real one, and the smallest that can be followed by hand."""

LIMIT, CACHE = Sampling().max_new_tokens, 12
# DAPO's soft punishment is 0 up to CACHE tokens below the limit and falls to −1 at the limit.
OVERLONG = Length(name="overlong", weight=-1.0, minimum=LIMIT, maximum=1_000_000, ramp=CACHE)

GROUP_RELATIVE: tuple[RecipeCard, ...] = (
    on_the_quickstart(
        "group-wise-softmax",
        "Group-wise softmax",
        "Each completion's log-likelihood, weighted by the softmax of the group's rewards: no completion is pushed down.",
        "To see what a centred advantage is good for. Most of each weight is the same for all completions and only adds noise; in results the recipe trails the z-score by little.",
        "The tutorial “Understanding Group-wise Policy Optimization”, section 2",
        r"\begin{aligned}w_i&=\frac{e^{r_i}}{\sum_j e^{r_j}}\\ \mathcal L&=-\sum_i w_i\,\log\pi(o_i)\end{aligned}",
        Algorithm(advantage=Softmax(), surrogate=PolicyGradient(), kl=Kl(beta=0), aggregation="group_sum"),
    ),
    on_the_quickstart(
        "group-wise-softmax-clip",
        "Group-wise softmax, stabilised",
        "The softmax weights under PPO's clipped ratio, with a KL penalty.",
        "When you want softmax weights with several updates on each batch.",
        "The tutorial “Understanding Group-wise Policy Optimization”, section 4",
        r"\begin{aligned}w_i&=\frac{e^{r_i}}{\sum_j e^{r_j}}\\ \mathcal L&=-\sum_i\sum_t\min\!\big(\rho_{i,t}w_i,\ \operatorname{clip}(\rho_{i,t},0.8,1.2)\,w_i\big)+\beta\,\mathrm{KL}\end{aligned}",
        # Softmax weights of rewards from 0 to 1 differ by about 0.1 where z-scores differ by 2: β is smaller by as much.
        Algorithm(advantage=Softmax(), kl=Kl(beta=0.005), aggregation="group_sum", updates_per_batch=2),
    ),
    on_the_quickstart(
        "dr-grpo",
        "Dr. GRPO",
        "No division by the group's std or the completion's length: those divisions favour hard prompts and long wrong answers.",
        "When completions grow longer and longer without getting better.",
        "Dr. GRPO (arXiv:2503.20783)",
        r"\begin{aligned}\hat A_i&=r_i-\operatorname{mean}(r)\\ \mathcal L&=-\tfrac1{G\,L_{\max}}\sum_i\sum_t\min\!\big(\rho_{i,t}\hat A_i,\ \operatorname{clip}(\rho_{i,t},0.8,1.2)\,\hat A_i\big)\end{aligned}",
        Algorithm(advantage=GroupCenter(), kl=Kl(beta=0), aggregation="constant"),
    ),
    card(
        "dapo",
        "DAPO",
        "Dead groups are replaced, the upper clip is wider, each token counts the same, overlong answers lose reward.",
        "When many groups are dead, or the entropy collapses.",
        "DAPO (arXiv:2503.14476): ε 0.2 and 0.28, no KL",
        r"\begin{aligned}\hat A_i&=\frac{r_i-\operatorname{mean}(r)}{\operatorname{std}(r)+\epsilon},\quad 0<\operatorname{std}(r)\\ \mathcal L&=-\tfrac1{\sum_i|o_i|}\sum_i\sum_t\min\!\big(\rho_{i,t}\hat A_i,\ \operatorname{clip}(\rho_{i,t},0.8,1.28)\,\hat A_i\big)\end{aligned}",
        GrpoConfig(
            rewards=Rewards(
                functions=[Correctness(name="correctness", weight=0.9), Format(name="format", weight=0.1), OVERLONG]
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
"""Other ways to compare a completion with its group."""

CLIPPING: tuple[RecipeCard, ...] = (
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
        "The capped ratio is only a weight, through which no gradient flows, so rare but decisive tokens keep their gradient.",
        "When clipping silences the very tokens that change the reasoning.",
        "MiniMax-M1 (arXiv:2506.13585); the cap of 5 is the usual choice, TRL's default of 0.2 caps every token",
        r"\mathcal L=-\tfrac1{\sum_i|o_i|}\sum_i\sum_t\operatorname{sg}\!\big[\min(\rho_{i,t},5)\big]\,\hat A_i\,\log\pi(o_{i,t})",
        Algorithm(surrogate=Cispo(), kl=Kl(beta=0), aggregation="token_mean", updates_per_batch=2),
    ),
    on_the_quickstart(
        "sapo",
        "SAPO",
        "A sigmoid in place of the clip: the further the ratio is from 1, the less a token counts, without a hard edge.",
        "When clipping makes training jump.",
        "Soft Adaptive Policy Optimization (arXiv:2511.20347): τ 1.0 and 1.05",
        r"\mathcal L=-\tfrac1G\sum_i\tfrac1{|o_i|}\sum_t\tfrac4\tau\,\sigma\!\big(\tau(\rho_{i,t}-1)\big)\,\hat A_i",
        Algorithm(surrogate=Sapo(), kl=Kl(beta=0), updates_per_batch=2),
    ),
    on_the_quickstart(
        "luspo",
        "LUSPO",
        "GSPO's ratio, with each completion's term multiplied by its length, so that tokens of long completions count as much as others.",
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
        "Each completion is weighted by a smooth curve of its ratio. The curve is 1 on policy and falls to 0 on both sides.",
        "For stale data: many updates per batch, or samples from an older policy.",
        "VESPO (arXiv:2602.10693): (k, λ) = (2, 3) and (3, 2)",
        r"\begin{aligned}w_i&=\tfrac{\pi(o_i)}{\pi_\mathrm{old}(o_i)},\quad\varphi(w)=\operatorname{sg}\!\big[e^{\lambda}w^{k}e^{-\lambda w}\big]\\ \mathcal L&=-\tfrac1{\sum_i|o_i|}\sum_i\sum_t\varphi(w_i)\,\hat A_i\,\log\pi(o_{i,t})\end{aligned}",
        Algorithm(
            surrogate=Vespo(), ratio="sequence_product", kl=Kl(beta=0), aggregation="token_mean", updates_per_batch=2
        ),
    ),
)
"""Other ways to hold a token, or a completion, near the policy that sampled it."""

POLICY_GRADIENT: tuple[RecipeCard, ...] = (
    on_the_quickstart(
        "reinforce",
        "REINFORCE",
        "The vanilla policy gradient: log-likelihood times the reward's distance from the batch's mean.",
        "To see what the group adds: easy and hard prompts share one baseline here.",
        "The vanilla policy gradient; Williams (1992)",
        r"\mathcal L=-\tfrac1R\sum_i\big(r_i-\bar r_\mathrm{batch}\big)\log\pi(o_i)",
        Algorithm(advantage=BatchBaseline(), surrogate=PolicyGradient(), kl=Kl(beta=0), aggregation="sequence_sum"),
    ),
    on_the_quickstart(
        "rloo",
        "RLOO",
        "REINFORCE, with each completion compared with the mean of the others in its group, and the KL subtracted from the reward.",
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
        "A value head learns what to expect at every token, and GAE compares what follows with that. The group plays no part.",
        "To see what GRPO leaves out, and what that part costs: another head, another loss, three more settings.",
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
"""What GRPO descends from and is set against: the policy gradient, its baselines, and a critic."""

PREFERENCES: tuple[RecipeCard, ...] = (
    on_the_quickstart(
        "dpo-online",
        "Online DPO",
        "The best and the worst completion of each group are a preference pair, made anew in every step.",
        "To see DPO and GRPO on the same groups: G = 2 with one right answer gives both the same gradient direction.",
        "DPO (arXiv:2305.18290) on the policy's own samples (arXiv:2402.04792)",
        r"\mathcal L=-\log\sigma\!\Big(\beta\log\frac{\pi(o_w)}{\pi_\mathrm{ref}(o_w)}-\beta\log\frac{\pi(o_l)}{\pi_\mathrm{ref}(o_l)}\Big)",
        Algorithm(advantage=BestWorst(), surrogate=Dpo(), kl=Kl(beta=0), aggregation="group_sum"),
    ),
    card(
        "dpo",
        "DPO",
        "Trains only on preference pairs stored before the first step: no reward model, and no sampling during training.",
        "When you have pairs of good and bad answers, or to see what a fixed set of pairs can teach.",
        "DPO (arXiv:2305.18290); β = 0.1",
        r"\mathcal L=-\log\sigma\!\Big(\beta\log\frac{\pi(y_w)}{\pi_\mathrm{ref}(y_w)}-\beta\log\frac{\pi(y_l)}{\pi_\mathrm{ref}(y_l)}\Big)",
        DpoConfig(
            optimizer=Optimizer(learning_rate=2e-5, warmup_steps=10), budget=DpoBudget(steps=100, eval_samples=4)
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
"""Learning from pairs: a better and a worse answer."""

FAMILIES = {
    "Start here": START,
    "Group-relative": GROUP_RELATIVE,
    "Ratio and clipping": CLIPPING,
    "Policy gradient": POLICY_GRADIENT,
    "Preferences": PREFERENCES,
}
RECIPES: tuple[RecipeCard, ...] = tuple(
    card.model_copy(update={"family": family}) for family, cards in FAMILIES.items() for card in cards
)
