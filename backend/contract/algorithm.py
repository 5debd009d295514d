"""How rewards become an update: one choice along each axis. A recipe is nothing but such choices."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from backend.contract.advantage import Advantage, GroupZscore
from backend.contract.base import Frozen, Misfit
from backend.contract.surrogate import Clip, Surrogate

KlEstimator = Literal["k1", "k2", "k3"]
RatioLevel = Literal["token", "sequence_mean", "sequence_product"]
Aggregation = Literal["sequence_mean", "token_mean", "constant", "sequence_sum", "group_sum", "group_token_mean"]
Logprobs = Literal["tempered", "plain", "renormalized"]


class Kl(Frozen):
    """The penalty that keeps the policy near the reference."""

    beta: Annotated[float, Field(ge=0, le=100)] = Field(
        0.04, description="Weight of the penalty; 0 turns it off, and the reference pass is skipped."
    )
    estimator: KlEstimator = Field(
        "k3", description="k1: lp − ref. k2: ½(lp − ref)². k3: exp(ref − lp) − (ref − lp) − 1, never negative."
    )
    placement: Literal["loss", "reward"] = Field(
        "loss",
        description="loss: a term of every token's loss (GRPO). reward: subtracted from the reward before the advantage (PPO, RLOO).",
    )
    reference: Literal["initial", "old", "synced"] = Field(
        "initial",
        description="initial: the weights at step 0. old: the policy that sampled the batch. synced: a copy "
        "of the policy, renewed every sync_every steps.",
    )
    sync_every: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        50, description="Steps between two renewals of a synced reference: it becomes a copy of the policy."
    )

    @model_validator(mode="after")
    def _penalises_something(self) -> "Kl":
        if self.placement == "reward" and self.reference == "old":
            text = (
                "a penalty in the reward compares the sampling policy with the reference, and reference old is that policy "
                "itself: it would always be 0; compare with initial, or put the penalty in the loss"
            )
            raise Misfit(text, "reference", {"reference": "initial"})
        return self


class Algorithm(Frozen):
    """The loss, axis by axis."""

    advantage: Advantage = Field(default_factory=GroupZscore, description="How a reward becomes an advantage.")
    surrogate: Surrogate = Field(default_factory=Clip, description="The loss of each token, before any penalty.")
    ratio: RatioLevel = Field(
        "token",
        description="Probability ratio new / old: per token (DeepSeekMath), its geometric mean over the completion (GSPO), or "
        "π(o)/π_old(o) of the whole completion.",
    )
    kl: Kl = Field(default_factory=Kl, description="The penalty for leaving the reference.")
    aggregation: Aggregation = Field(
        "sequence_mean",
        description="sequence_mean: each completion counts once (DeepSeekMath). token_mean: each token counts once (DAPO). constant: divided by "
        "completions × max new tokens (Dr. GRPO). sequence_sum: mean over completions of their tokens' sum (LUSPO). group_sum: token losses are "
        "summed over each group, then averaged over prompts. group_token_mean: each completion's mean token loss, summed and averaged the same way.",
    )
    logprobs: Logprobs = Field(
        "tempered",
        description="tempered: log-probs of the temperature-scaled distribution over all tokens. plain: at temperature 1, "
        "whatever the sampling temperature was. renormalized: over the tokens that top-k and top-p had left when it was sampled.",
    )
    entropy_bonus: Annotated[float, Field(ge=0, le=10)] = Field(
        0.0, description="Weight of the entropy that is added to the objective (PPO's c2)."
    )
    updates_per_batch: Annotated[int, Field(ge=1, le=64)] = Field(
        1,
        description="Optimizer updates on each sampled batch. With 1 the ratio is exactly 1 and nothing is ever clipped.",
    )
    truncated_completions: Literal["keep", "mask"] = Field(
        "keep", description="Whether completions cut at the token limit are trained on, or only scored."
    )
    dead_groups: Literal["keep", "resample"] = Field(
        "keep",
        description="keep: groups with equal rewards stay in the batch. resample: they are replaced by groups of further "
        "prompts until the batch is full of live ones (DAPO's dynamic sampling).",
    )
    resample_rounds: Annotated[int, Field(ge=1, le=64)] = Field(
        4, description="How often dead groups are replaced in one step; those of the last round stay."
    )

    @property
    def needs_reference(self) -> bool:
        """Whether the loss or the reward compares with weights other than those that sampled the batch."""
        return self.kl.reference != "old" and (self.kl.beta > 0 or self.surrogate.weighs == "pairs")

    @model_validator(mode="after")
    def _surrogate_fits(self) -> "Algorithm":
        chosen, kind = self.surrogate, self.surrogate.kind
        if not chosen.uses_ratio and self.ratio != "token":
            raise Misfit(f"{kind} uses no ratio, so {self.ratio} would change nothing", "ratio", {"ratio": "token"})
        if chosen.weighs == "completions" and self.advantage.reads == "tokens":
            text = f"{kind} weighs whole completions, and {self.advantage.kind} gives each token an advantage of its own; use clip"
            raise Misfit(text, "surrogate", {"surrogate": {"kind": "clip"}})
        if chosen.weighs == "completions" and self.ratio != "sequence_product":
            text = f"{kind} weighs whole completions by π(o)/π_old(o); its ratio is sequence_product, not {self.ratio}"
            raise Misfit(text, "ratio", {"ratio": "sequence_product"})
        if chosen.weighs == "pairs" and self.advantage.kind != "best_worst":
            text = f"{kind} compares the best completion of a group with its worst; its advantage is best_worst, not {self.advantage.kind}"
            raise Misfit(text, "advantage", {"advantage": {"kind": "best_worst"}})
        if chosen.weighs == "pairs" and self.aggregation != "group_sum":
            text = f"{kind} has one loss for each group, averaged over prompts: its aggregation is group_sum, not {self.aggregation}"
            raise Misfit(text, "aggregation", {"aggregation": "group_sum"})
        return self

    @model_validator(mode="after")
    def _advantage_fits(self) -> "Algorithm":
        kind = self.advantage.kind
        if self.advantage.reads == "tokens" and self.ratio != "token":
            text = f"{kind} gives each token an advantage of its own, and {self.ratio} gives the completion one ratio; use token"
            raise Misfit(text, "ratio", {"ratio": "token"})
        if self.advantage.reads == "components" and self.kl.placement == "reward" and self.kl.beta > 0:
            text = (
                f"{kind} normalises each reward function by itself, and a KL penalty in the reward is not one of them; "
                "put the penalty in the loss"
            )
            raise Misfit(text, "kl.placement", {"kl.placement": "loss"})
        return self
