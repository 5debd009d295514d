"""Where to start: GRPO on the small model, on a real one, and the smallest that can be followed by hand."""

from backend.contract.advantage import (
    GroupZscore,
)
from backend.contract.algorithm import Algorithm, Kl
from backend.contract.catalog import RecipeCard
from backend.contract.families.card import QUICKSTART_OPTIMIZER, card
from backend.contract.grpo import GrpoConfig
from backend.contract.model import Model
from backend.contract.reward import Correctness, Rewards
from backend.contract.task import Arithmetic, SinglePrompt
from backend.contract.training import Budget, Optimizer, Sampling

SMOLLM2 = "builtin:smollm2-135m-instruct"
FORMULA = (
    r"\begin{aligned}\hat A_i&=\frac{r_i-\operatorname{mean}(r)}{\operatorname{std}(r)+\epsilon}\\ "
    r"\mathcal L&=-\tfrac1G\sum_i\tfrac1{|o_i|}\sum_t\min\!\big("
    r"\rho_{i,t}\hat A_i,\ \operatorname{clip}(\rho_{i,t},0.8,1.2)\,\hat A_i\big)\\ "
    r"&\quad+\beta\,\mathrm{KL}(\pi\,\|\,\pi_\mathrm{ref})\end{aligned}"
)

CARDS: tuple[RecipeCard, ...] = (
    card(
        "grpo",
        "GRPO",
        "Group z-score, clipped ratio, KL to the initial weights: the algorithm as DeepSeekMath published it.",
        "Start here: on the small arithmetic model it learns precedence in minutes, on any machine.",
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
        "One prompt, one token, two groups of four, reward 1 or 0: GRPO small enough to check every number by hand.",
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
