"""Recipes: named starting points. Each is nothing but a choice along the axes, with its source."""

from backend.contract.advantage import (
    BatchBaseline,
    BestWorst,
    Gae,
    GroupCenter,
    GroupZscore,
    LeaveOneOut,
    Softmax,
)
from backend.contract.algorithm import Algorithm, Kl
from backend.contract.config import TrainingConfig
from backend.contract.grpo import GrpoConfig
from backend.contract.model import Model
from backend.contract.preference import DpoBudget, DpoConfig, PairBudget, RewardModelConfig
from backend.contract.records import RecipeCard
from backend.contract.reward import Correctness, Format, Length, Rewards
from backend.contract.surrogate import Cispo, Clip, Dpo, PolicyGradient, Sapo, Vespo
from backend.contract.task import Arithmetic, SinglePrompt
from backend.contract.training import Budget, Optimizer, Sampling

SMOLLM2 = "builtin:smollm2-135m-instruct"
QUICKSTART = "grpo"
# 1e-4 and 2e-4 learn faster, but are done by step 40 and leave little to watch; see docs/experiments.md.
QUICKSTART_OPTIMIZER = Optimizer(learning_rate=5e-5, warmup_steps=10)


def _card(id: str, title: str, sentence: str, when: str, source: str, config: TrainingConfig) -> RecipeCard:
    return RecipeCard(
        id=id,
        title=title,
        sentence=sentence,
        when=when,
        source=source,
        config=config.model_copy(update={"recipe": id}).model_dump(mode="json"),
    )


def _grpo() -> RecipeCard:
    return _card(
        "grpo",
        "GRPO",
        "Group z-score, clipped ratio, KL to the initial weights: the algorithm as DeepSeekMath published it.",
        "Start here: on the small arithmetic model it learns precedence in minutes, on any machine.",
        "DeepSeekMath (arXiv:2402.03300), equations 3 and 4; β = 0.04, ε = 0.2",
        GrpoConfig(optimizer=QUICKSTART_OPTIMIZER, budget=Budget(eval_samples=4)),
    )


def _smollm2_arithmetic() -> RecipeCard:
    return _card(
        "smollm2-arithmetic",
        "GRPO on SmolLM2",
        "A real pretrained chat model of 135 million parameters learns to answer “What is a + b?”.",
        "When you want to see a real language model learn, on a laptop, in about ten minutes.",
        "GRPO as above, with AdamW at 1e-5",
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
    )


def _grpo_notebook() -> RecipeCard:
    return _card(
        "grpo-notebook",
        "GRPO, the seed notebook's",
        "One prompt, one token, two groups of four: the notebook's example as it stands, dead groups and all.",
        "To follow the notebook line by line. Most groups are dead: all four answers are wrong, or all are right.",
        "The notebook “GRPO”: population std, k1 KL to the old policy, top-k 10, temperature 0.7, log-probs at temperature 1",
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
    )


def _on_the_quickstart(id: str, title: str, sentence: str, when: str, source: str, algorithm: Algorithm) -> RecipeCard:
    """Another algorithm where everything else is the quickstart's, so that runs compare."""
    config = GrpoConfig(algorithm=algorithm, optimizer=QUICKSTART_OPTIMIZER, budget=Budget(eval_samples=4))
    return _card(id, title, sentence, when, source, config)


def _softmax() -> RecipeCard:
    return _on_the_quickstart(
        "group-wise-softmax",
        "Group-wise softmax",
        "Each completion's log-likelihood, weighted by the softmax of the group's rewards: no completion is pushed down.",
        "To follow the group-wise guide. It learns slower than a centred advantage: most of each weight is the same for all.",
        "The guide “Understanding Group-wise Policy Optimization”, section 2",
        Algorithm(advantage=Softmax(), surrogate=PolicyGradient(), kl=Kl(beta=0), aggregation="group_sum"),
    )


def _softmax_clip() -> RecipeCard:
    return _on_the_quickstart(
        "group-wise-softmax-clip",
        "Group-wise softmax, stabilised",
        "The softmax weights under PPO's clipped ratio, with a KL penalty.",
        "The guide's recommendation for production: the same weights, several updates per batch.",
        "The guide “Understanding Group-wise Policy Optimization”, section 4",
        # Softmax weights of rewards from 0 to 1 differ by about 0.1 where z-scores differ by 2: β is smaller by as much.
        Algorithm(advantage=Softmax(), kl=Kl(beta=0.005), aggregation="group_sum", updates_per_batch=2),
    )


def _dr_grpo() -> RecipeCard:
    return _on_the_quickstart(
        "dr-grpo",
        "Dr. GRPO",
        "No division by the group's std or the completion's length, which favour hard prompts and long wrong answers.",
        "When completions grow longer and longer without getting better.",
        "Dr. GRPO (arXiv:2503.20783)",
        Algorithm(advantage=GroupCenter(), kl=Kl(beta=0), aggregation="constant"),
    )


def _dapo() -> RecipeCard:
    limit, cache = Sampling().max_new_tokens, 12
    # DAPO's soft punishment is 0 up to `cache` tokens below the limit and falls to −1 at the limit.
    overlong = Length(name="overlong", weight=-1.0, minimum=limit, maximum=1_000_000, ramp=cache)
    return _card(
        "dapo",
        "DAPO",
        "Dead groups are sampled again, the upper clip is wider, each token counts once, overlong answers cost.",
        "When many groups are dead, or the entropy collapses.",
        "DAPO (arXiv:2503.14476): ε 0.2 and 0.28, no KL",
        GrpoConfig(
            rewards=Rewards(
                functions=[
                    Correctness(name="correctness", weight=0.9),
                    Format(name="format", weight=0.1),
                    overlong,
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
    )


def _gspo() -> RecipeCard:
    return _on_the_quickstart(
        "gspo",
        "GSPO",
        "One ratio for the whole completion, the geometric mean of its tokens' ratios, clipped very narrowly.",
        "For long completions and mixture-of-experts models, where single tokens' ratios are noisy.",
        "GSPO (arXiv:2507.18071), section 5.1: ε 3e-4 and 4e-4, no KL",
        Algorithm(
            surrogate=Clip(epsilon_low=3e-4, epsilon_high=4e-4),
            ratio="sequence_mean",
            kl=Kl(beta=0),
            updates_per_batch=2,
        ),
    )


def _cispo() -> RecipeCard:
    return _on_the_quickstart(
        "cispo",
        "CISPO",
        "The ratio is capped as a weight, without gradient, so that rare but decisive tokens keep theirs.",
        "When clipping silences the very tokens that change the reasoning.",
        "MiniMax-M1 (arXiv:2506.13585); the cap of 5 is the usual choice, TRL's default of 0.2 caps every token",
        Algorithm(surrogate=Cispo(), kl=Kl(beta=0), aggregation="token_mean", updates_per_batch=2),
    )


def _sapo() -> RecipeCard:
    return _on_the_quickstart(
        "sapo",
        "SAPO",
        "A sigmoid in place of the clip: the further the ratio is from 1, the less a token counts, without an edge.",
        "When clipping makes training jump.",
        "Soft Adaptive Policy Optimization (arXiv:2511.20347): τ 1.0 and 1.05",
        Algorithm(surrogate=Sapo(), kl=Kl(beta=0), updates_per_batch=2),
    )


def _luspo() -> RecipeCard:
    return _on_the_quickstart(
        "luspo",
        "LUSPO",
        "GSPO's ratio, each completion's term multiplied by its length, so that length does not thin the signal.",
        "When GSPO's completions get shorter without reason.",
        "Length-Unbiased Sequence Policy Optimization (arXiv:2602.05261); ε as in GSPO",
        Algorithm(
            surrogate=Clip(epsilon_low=3e-4, epsilon_high=4e-4),
            ratio="sequence_mean",
            kl=Kl(beta=0),
            aggregation="sequence_sum",
            updates_per_batch=2,
        ),
    )


def _vespo() -> RecipeCard:
    return _on_the_quickstart(
        "vespo",
        "VESPO",
        "Whole completions weighed by a smooth curve of their ratio that is 1 on policy and fades on both sides.",
        "For stale data: many updates per batch, or samples from an older policy.",
        "VESPO (arXiv:2602.10693): (k, λ) = (2, 3) and (3, 2)",
        Algorithm(
            surrogate=Vespo(), ratio="sequence_product", kl=Kl(beta=0), aggregation="token_mean", updates_per_batch=2
        ),
    )


def _rloo() -> RecipeCard:
    return _on_the_quickstart(
        "rloo",
        "RLOO",
        "REINFORCE, each completion against the mean of its siblings, with the KL taken off the reward.",
        "A plain and strong baseline: unbiased, nothing to clip.",
        "REINFORCE leave-one-out (arXiv:2402.14740)",
        Algorithm(
            advantage=LeaveOneOut(),
            surrogate=PolicyGradient(),
            kl=Kl(beta=0.05, estimator="k1", placement="reward"),
            aggregation="sequence_sum",
        ),
    )


def _reinforce() -> RecipeCard:
    return _on_the_quickstart(
        "reinforce",
        "REINFORCE",
        "The vanilla policy gradient: log-likelihood times reward, less the batch's mean.",
        "To see what the group adds: easy and hard prompts share one baseline here.",
        "The blog's VPG; Williams (1992)",
        Algorithm(advantage=BatchBaseline(), surrogate=PolicyGradient(), kl=Kl(beta=0), aggregation="sequence_sum"),
    )


def _ppo() -> RecipeCard:
    return _on_the_quickstart(
        "ppo",
        "PPO",
        "A value head learns what to expect of every token; GAE compares with it. The group plays no part.",
        "To see what GRPO leaves out, and what it costs: another head, another loss, three more settings.",
        "The blog's PPO with GAE (arXiv:1707.06347, 1506.02438); last-token reward, k1 KL in the reward",
        Algorithm(
            advantage=Gae(),
            kl=Kl(beta=0.04, estimator="k1", placement="reward"),
            aggregation="token_mean",
            entropy_bonus=0.001,
            updates_per_batch=2,
        ),
    )


def _dpo_online() -> RecipeCard:
    return _on_the_quickstart(
        "dpo-online",
        "Online DPO",
        "The best and the worst completion of each group are a preference pair, made anew in every step.",
        "To see DPO and GRPO on the same groups: G = 2 with one right answer gives them the same direction.",
        "The blog's DPO (arXiv:2305.18290) on the policy's own samples (arXiv:2402.04792)",
        Algorithm(advantage=BestWorst(), surrogate=Dpo(), kl=Kl(beta=0), aggregation="group_sum"),
    )


def _dpo() -> RecipeCard:
    return _card(
        "dpo",
        "DPO",
        "No reward model and no sampling while it trains: preference pairs alone, stored before the first step.",
        "When you have pairs of good and bad answers, or to see what pairs that are not renewed can teach.",
        "The blog's DPO (arXiv:2305.18290); β = 0.1",
        DpoConfig(
            optimizer=Optimizer(learning_rate=2e-5, warmup_steps=10),
            budget=DpoBudget(steps=100, eval_samples=4),
        ),
    )


def _reward_model() -> RecipeCard:
    return _card(
        "reward-model",
        "Reward model",
        "Learns from preference pairs to score: the chosen completion above the rejected one (Bradley-Terry).",
        "When no function can tell good from bad, but a person can; the run becomes a reward of other runs.",
        "The blog's Bradley-Terry model; InstructGPT (arXiv:2203.02155), equation 1",
        RewardModelConfig(
            optimizer=Optimizer(learning_rate=3e-4, warmup_steps=5),
            budget=PairBudget(steps=60, eval_every=20, checkpoint_every=0),
        ),
    )


RECIPES: tuple[RecipeCard, ...] = (
    _grpo(),
    _smollm2_arithmetic(),
    _grpo_notebook(),
    _softmax(),
    _softmax_clip(),
    _dr_grpo(),
    _dapo(),
    _gspo(),
    _cispo(),
    _sapo(),
    _luspo(),
    _vespo(),
    _rloo(),
    _reinforce(),
    _ppo(),
    _dpo_online(),
    _dpo(),
    _reward_model(),
)
