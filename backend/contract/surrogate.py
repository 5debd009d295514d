"""The loss of each token: one model for each surrogate loss, with its own settings."""

from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field, model_validator

from backend.contract.base import Frozen, Misfit

Epsilon = Annotated[float, Field(ge=0, le=100)]
Positive = Annotated[float, Field(gt=0, le=100)]


class SurrogateLoss(Frozen):
    """What the program asks of any surrogate; each kind says only where it differs from these answers."""

    weighs: ClassVar[Literal["tokens", "completions", "pairs"]] = "tokens"
    """What has one weight in the loss."""
    uses_ratio: ClassVar[bool] = True
    """Whether the ratio of new to old probability is a part of it."""
    constant_weight: ClassVar[bool] = False
    """Whether it is A log p times a weight that carries no gradient, instead of a function of the ratio."""
    acronym: ClassVar[bool] = False
    """Whether people write its kind in capitals."""


class Clip(SurrogateLoss):
    """−min(ρ·A, clip(ρ, 1 − ε_low, 1 + ε_high)·A): PPO's and GRPO's clipped surrogate, ρ the ratio of new to old probability."""

    kind: Literal["clip"] = "clip"
    epsilon_low: Epsilon = Field(0.2, description="The ratio is clipped below 1 − this.")
    epsilon_high: Epsilon = Field(0.2, description="The ratio is clipped above 1 + this.")
    delta: Annotated[float, Field(gt=1, le=1000)] | None = Field(
        None, description="Also caps the ratio in the unclipped term ρ·A, which bounds the loss of discouraged tokens."
    )

    @model_validator(mode="after")
    def _room(self) -> "Clip":
        if self.epsilon_low > 1:
            text = f"epsilon_low is {self.epsilon_low}: a ratio is never below 0, use at most 1"
            raise Misfit(text, "epsilon_low", {"epsilon_low": 1})
        if self.delta is not None and self.delta <= 1 + self.epsilon_high:
            raise Misfit(f"delta ({self.delta}) must be above 1 + epsilon_high ({1 + self.epsilon_high})", "delta")
        return self


class PolicyGradient(SurrogateLoss):
    """−A·log p (VPG, REINFORCE): no ratio, no clipping. With softmax weights as A: a weighted likelihood."""

    kind: Literal["policy_gradient"] = "policy_gradient"
    uses_ratio = False
    constant_weight = True


class Cispo(SurrogateLoss):
    """−min(ρ, cap)·A·log p, the weight without gradient (CISPO): a token with a large ratio counts less, but keeps its gradient."""

    kind: Literal["cispo"] = "cispo"
    acronym = True
    constant_weight = True
    cap: Positive = Field(
        5.0, description="The largest weight. TRL calls it epsilon_high (0.2 by default there); in verl it is 1 + ε."
    )


class Sapo(SurrogateLoss):
    """−sigmoid(τ(ρ − 1))·4/τ·A (SAPO): the clip's edge as a smooth gate."""

    kind: Literal["sapo"] = "sapo"
    acronym = True
    tau_positive: Positive = Field(1.0, description="τ where A is above 0; higher is a sharper gate.")
    tau_negative: Positive = Field(1.05, description="τ for every other A.")


class Vespo(SurrogateLoss):
    """−φ(w)·A·log p, φ(w) = e^λ w^k e^(−λw) without gradient, w the whole completion's ratio (VESPO)."""

    kind: Literal["vespo"] = "vespo"
    acronym = True
    weighs = "completions"
    constant_weight = True
    k_positive: Positive = Field(2.0, description="k where A is not below 0.")
    lambda_positive: Positive = Field(3.0, description="λ where A is not below 0.")
    k_negative: Positive = Field(3.0, description="k where A is below 0.")
    lambda_negative: Positive = Field(2.0, description="λ where A is below 0.")


class Dpo(SurrogateLoss):
    """−log σ(β[(lp_w − ref_w) − (lp_l − ref_l)]) on the group's best (w) and worst (l) completion."""

    kind: Literal["dpo"] = "dpo"
    acronym = True
    weighs = "pairs"
    uses_ratio = False
    beta: Positive = Field(
        0.1,
        description="DPO's β, not the KL's: the larger it is, the smaller a margin is enough for a pair to stop pulling.",
    )


Surrogate = Annotated[Clip | PolicyGradient | Cispo | Sapo | Vespo | Dpo, Field(discriminator="kind")]

SURROGATES: dict[str, type[SurrogateLoss]] = {
    one.model_fields["kind"].default: one for one in get_args(get_args(Surrogate)[0])
}
"""Each surrogate by its kind."""
