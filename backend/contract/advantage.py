"""How a reward becomes an advantage: one model for each estimator, with its own settings."""

from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field

from backend.contract.base import Frozen

Eps = Annotated[float, Field(gt=0, le=1)]
Share = Annotated[float, Field(ge=0, le=1)]

Std = Literal["population", "sample"]


class Estimator(Frozen):
    """What the program asks of any estimator; each kind says only where it differs from these answers."""

    compares: ClassVar[Literal["group", "batch", "nothing", "tokens"]] = "group"
    """With what it compares a completion's reward. To compare within a group takes two scored completions."""
    reads: ClassVar[Literal["group", "components", "batch", "tokens"]] = "group"
    """What it computes an advantage from: the group's rewards, those of each reward function, of the whole batch, or values."""
    divides_by: ClassVar[Literal["group", "batch"] | None] = None
    """Whose standard deviation the reward is divided by."""
    centred: ClassVar[bool] = True
    """Whether a group's advantages add up to 0. Equal rewards then give advantages of exactly 0: such a group is dead."""
    acronym: ClassVar[bool] = False
    """Whether people write its kind in capitals."""

    kind: str


class GroupZscore(Estimator):
    """(r − group mean) / (max(group std, std_floor) + eps): DeepSeekMath's group-relative advantage, which has no floor."""

    kind: Literal["group_zscore"] = "group_zscore"
    divides_by = "group"
    std: Std = Field(
        "population", description="population divides by G (as numpy.std), sample by G − 1 (as torch.std, and in TRL)."
    )
    eps: Eps = Field(1e-8, description="Added to the std.")
    std_floor: Annotated[float, Field(ge=0, le=1e6)] = Field(
        0.0,
        description="The least std that rewards are divided by: where they nearly agree, their small differences stay small. 0: no floor.",
    )


class GroupCenter(Estimator):
    """r − group mean (Dr. GRPO): no division, so that easy and hard prompts are not pushed harder than others."""

    kind: Literal["group_center"] = "group_center"


class BatchStd(Estimator):
    """(r − group mean) / (std of the whole batch + eps): no group is pushed harder because its rewards lie close."""

    kind: Literal["batch_std"] = "batch_std"
    reads = "batch"
    divides_by = "batch"
    eps: Eps = Field(1e-4, description="Added to the std (with Bessel's correction: divides by N − 1).")


class Softmax(Estimator):
    """softmax(r) within the group: weights that add up to 1, none of them negative."""

    kind: Literal["softmax"] = "softmax"
    centred = False


class LeaveOneOut(Estimator):
    """r − mean of the group's other rewards (RLOO)."""

    kind: Literal["leave_one_out"] = "leave_one_out"


class BatchBaseline(Estimator):
    """r − mean of the whole batch (REINFORCE with a baseline)."""

    kind: Literal["batch_baseline"] = "batch_baseline"
    compares = "batch"
    reads = "batch"
    centred = False


class NoBaseline(Estimator):
    """r itself (the vanilla policy gradient)."""

    kind: Literal["none"] = "none"
    compares = "nothing"
    centred = False


class NormalizeThenSum(Estimator):
    """Each reward function z-scored in the group, then weighted and added up, then z-scored over the batch (GDPO)."""

    kind: Literal["normalize_then_sum"] = "normalize_then_sum"
    reads = "components"
    eps: Eps = Field(1e-4, description="Added to each std (with Bessel's correction: divides by N − 1).")


class BestWorst(Estimator):
    """+1 for the group's best completion, −1 for its worst, 0 for the others: a preference pair made online."""

    kind: Literal["best_worst"] = "best_worst"


class Gae(Estimator):
    """Generalised advantage estimation with a learned value head (PPO): one advantage for each token."""

    kind: Literal["gae"] = "gae"
    acronym = True
    compares = "tokens"
    reads = "tokens"
    centred = False
    gamma: Share = Field(1.0, description="Discount of the next token's value.")
    lam: Share = Field(
        0.95, description="λ: 0 is the one-step TD error (low variance, biased), 1 is Monte Carlo (unbiased)."
    )
    normalize: bool = Field(True, description="Z-score the advantages over the batch's tokens, as PPO's code bases do.")
    value_coefficient: Annotated[float, Field(ge=0, le=100)] = Field(
        0.1, description="Weight of the value loss (PPO's c1); it also trains the layers below the value head."
    )
    value_learning_rate: Annotated[float, Field(gt=0, le=1)] = Field(
        1e-3, description="Learning rate of the value head, which starts at 0."
    )


Advantage = Annotated[
    GroupZscore
    | GroupCenter
    | BatchStd
    | Softmax
    | LeaveOneOut
    | BatchBaseline
    | NoBaseline
    | NormalizeThenSum
    | BestWorst
    | Gae,
    Field(discriminator="kind"),
]

ESTIMATORS: dict[str, type[Estimator]] = {
    one.model_fields["kind"].default: one for one in get_args(get_args(Advantage)[0])
}
"""Each estimator by its kind."""
