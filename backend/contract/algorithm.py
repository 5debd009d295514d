"""How rewards become an update: one choice along each axis. A recipe is nothing but such choices."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from backend.contract.base import Frozen, Misfit

Epsilon = Annotated[float, Field(ge=0, le=100)]


class GroupZscore(Frozen):
    """(r − group mean) / (group std + eps): DeepSeekMath's group-relative advantage."""

    kind: Literal["group_zscore"] = "group_zscore"
    std: Literal["population", "sample"] = Field(
        "population", description="population divides by G (the notebook's code), sample by G − 1 (its table, TRL)."
    )
    eps: Annotated[float, Field(gt=0, le=1)] = Field(1e-8, description="Added to the std.")


class GroupCenter(Frozen):
    """r − group mean (Dr. GRPO): no division, so that easy and hard prompts are not pushed harder than others."""

    kind: Literal["group_center"] = "group_center"


class Clip(Frozen):
    """−min(r·A, clip(r, 1 − ε_low, 1 + ε_high)·A): PPO's and GRPO's clipped surrogate."""

    kind: Literal["clip"] = "clip"
    epsilon_low: Epsilon = Field(0.2, description="The ratio is clipped below 1 − this.")
    epsilon_high: Epsilon = Field(0.2, description="The ratio is clipped above 1 + this.")
    delta: Annotated[float, Field(gt=1, le=1000)] | None = Field(
        None, description="A cap on the unclipped ratio too, which bounds the loss of discouraged tokens."
    )

    @model_validator(mode="after")
    def _room(self) -> "Clip":
        if self.epsilon_low > 1:
            raise Misfit(
                f"epsilon_low is {self.epsilon_low}: a ratio is never below 0, use at most 1",
                "epsilon_low",
                {"epsilon_low": 1},
            )
        if self.delta is not None and self.delta <= 1 + self.epsilon_high:
            raise Misfit(f"delta ({self.delta}) must be above 1 + epsilon_high ({1 + self.epsilon_high})", "delta")
        return self


class PolicyGradient(Frozen):
    """−A·log p (VPG, REINFORCE): no ratio, no clipping."""

    kind: Literal["policy_gradient"] = "policy_gradient"


class Kl(Frozen):
    """The penalty that keeps the policy near the reference."""

    beta: Annotated[float, Field(ge=0, le=100)] = Field(
        0.04, description="Weight of the penalty; 0 turns it off and saves the reference pass."
    )
    estimator: Literal["k1", "k2", "k3"] = Field(
        "k3", description="k1: lp − ref. k2: ½(lp − ref)². k3: exp(ref − lp) − (ref − lp) − 1, never negative."
    )
    reference: Literal["initial", "old"] = Field(
        "initial", description="initial: the weights at step 0. old: the policy that sampled the batch (the notebook)."
    )


class Algorithm(Frozen):
    """The loss, axis by axis."""

    advantage: Annotated[GroupZscore | GroupCenter, Field(discriminator="kind")] = Field(
        default_factory=GroupZscore, description="How a reward becomes an advantage."
    )
    surrogate: Annotated[Clip | PolicyGradient, Field(discriminator="kind")] = Field(
        default_factory=Clip, description="What is minimised for each token."
    )
    ratio: Literal["token", "sequence_mean", "sequence_product"] = Field(
        "token",
        description="Probability ratio new / old: per token (DeepSeekMath), its geometric mean over the completion (GSPO), or "
        "of the whole completion (the notebook's formula).",
    )
    kl: Kl = Field(default_factory=Kl, description="The penalty for leaving the reference.")
    aggregation: Literal["sequence_mean", "token_mean", "constant"] = Field(
        "sequence_mean",
        description="sequence_mean: each completion counts once (DeepSeekMath). token_mean: each token counts once (DAPO). "
        "constant: divided by completions × max new tokens (Dr. GRPO).",
    )
    logprobs: Literal["tempered", "plain"] = Field(
        "tempered",
        description="tempered: log-probs of the temperature-scaled distribution that was sampled. plain: at temperature 1, as "
        "the notebook computes them.",
    )
    entropy_bonus: Annotated[float, Field(ge=0, le=10)] = Field(
        0.0, description="Weight of the entropy that is added to the objective."
    )
    updates_per_batch: Annotated[int, Field(ge=1, le=64)] = Field(
        1,
        description="Optimizer updates on each sampled batch. With 1 the ratio is exactly 1 and nothing is ever clipped.",
    )
    truncated_completions: Literal["keep", "mask"] = Field(
        "keep", description="Whether completions cut at the token limit are trained on, or only scored."
    )
