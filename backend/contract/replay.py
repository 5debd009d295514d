"""A run that does a step of another again: what each of its groups did to the weights, and what the update did to the completions."""

from typing import Annotated, Literal

from pydantic import Field

from backend.contract.algorithm import Algorithm
from backend.contract.base import CleanText, Count, Frozen, Json, Record, ShortText, cut
from backend.contract.model import Model, ModelSource

MOST_REPEATED = 200
"""The most steps between the checkpoint and the step that is explained: each is done again."""

MOST_PASSES = 8
"""The most passes of a step on its batch that are taken apart: each beyond the first takes the memory of three more copies of what is trained."""

MOST_COMPARED = 64
"""The most groups whose gradients are held against each other; those that moved the weights most."""
MOST_TOKENS = 50
"""The most tokens of a step that are named."""
MOST_TOKEN_SHARES = 4096
"""The most tokens of a group whose own parts of the update are computed: each takes a backward pass through its completion."""


class ReplayConfig(Frozen):
    """A step of a run, done again from the newest checkpoint before it. The backend fills it in: `POST /runs/{id}/replays`."""

    schema_version: Literal[1] = 1
    kind: Literal["replay"] = "replay"
    model: Model = Field(description="Where it begins: run:<id>@<checkpoint>, or the model that the run began with.")
    origin: ModelSource | None = Field(
        None, description="The model that the run began with, if that was a checkpoint of another run."
    )
    run: Annotated[int, Field(ge=1, le=2**63 - 1)] = Field(description="The run whose step it is.")
    step: Annotated[int, Field(ge=0, le=1_000_000)] = Field(description="The step that is explained.")
    checkpoint: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        description="The steps that are done where it begins; 0 is the run's beginning."
    )
    device: ShortText = Field(description="What the run was computed on; another device rounds in another way.")
    versions: Annotated[dict[ShortText, ShortText], Field(max_length=64)] = Field(
        description="Of the libraries that computed the run."
    )

    group: Count | None = Field(None, description="A group that is taken apart by completion and token, too.")
    other: Algorithm | None = Field(
        None, description="What else could have been: the update of this algorithm, from the same step."
    )

    @property
    def steps(self) -> int:
        """How many steps are done at its end, counted from the run's beginning."""
        return self.step + 1


class ReplayCreate(Frozen):
    """The body of POST /runs/{id}/replays."""

    step: Annotated[int, Field(ge=0, le=1_000_000)]
    group: Count | None = Field(
        None, description="A group of the step, by its index, to take apart by completion and token."
    )
    other: dict[Annotated[str, Field(max_length=200)], Json] = Field(
        {}, description="Dotted paths below `algorithm`, and other values: the update that those would have made."
    )


class ReplayOutlook(Record):
    """Whether a step can be done again exactly: the replay's configuration, or why it cannot."""

    config: ReplayConfig | None = None
    refusal: CleanText | None = None


class ReplayedRun(Record):
    """What a claim says of the run that is replayed."""

    config: dict[str, Json]


class Part(Record):
    """What a group, or something smaller, contributed to the update Δθ of a step.

    With Adam's second moments as they were, Δθ is a sum: a part for each group, one for the momentum of earlier steps and one for the
    weight decay. Of a step with several passes on its batch, a part is what the group's gradients of all passes made. `share` is a part's projection on Δθ, ⟨part, Δθ⟩ / ‖Δθ‖², so that all shares add up to 1; a negative one pulled the other way.
    """

    index: Count
    norm: float | None = Field(
        description="Of its gradient of the loss, before the whole gradient was scaled down (of several passes, of the mean of its "
        "gradients); None: not finite."
    )
    cosine: float | None = Field(description="Of minus its gradient with the update; None without a gradient.")
    size: float = Field(description="The norm of its part of the update, in norms of the update.")
    share: float = Field(description="Of the update; the shares of a step add up to 1.")


class MovedToken(Record):
    """A token of a completion, and its log-prob before and after the update."""

    group: Count
    completion: Count
    position: Count
    text: Annotated[CleanText, cut(200)]
    advantage: float
    before: float
    after: float


class GroupDetail(Record):
    """A group, taken apart."""

    group: Count
    completions: Annotated[list[Part], Field(max_length=1024)]
    tokens: Annotated[list[list[float]], Field(max_length=1024)] = Field(
        description="The share of each token of each completion; empty if they are too many."
    )


class OtherUpdate(Record):
    """The update that another algorithm would have made of the same completions and scores, from the same weights and moments."""

    algorithm: dict[str, Json]
    cosine: float | None = Field(description="With the real update; None if one of the two is 0.")
    update_norm: float
    probes: Annotated[list[list[float]], Field(max_length=64)] = Field(
        description="By probe and completion: the change of its log-prob, in nats."
    )


class Replayed(Record):
    """What a replay of a step found. Its groups and the probes, with log-probs before and after, are the replay's own groups."""

    run_id: int
    step: Count
    from_step: Count = Field(description="Of the checkpoint: the steps from there on were done again.")
    update_norm: float = Field(description="‖Δθ‖; 0 if the weights stayed.")
    momentum: float = Field(description="Share of what earlier steps had left in the optimizer.")
    decay: float = Field(description="Share of the weight decay.")
    apart: float | None = Field(
        description="‖sum of the groups' gradients − the step's gradient‖ / ‖the step's gradient‖, of the pass with the most: rounding."
    )
    groups: Annotated[list[Part], Field(max_length=8192)]
    compared: Annotated[list[Count], Field(max_length=MOST_COMPARED)] = Field(
        description="The groups of `agreement`, by their index."
    )
    agreement: Annotated[list[list[float | None]], Field(max_length=MOST_COMPARED)] = Field(
        description="The cosine of each of these groups' gradients with each other's; None without a gradient."
    )
    projected: Count | None = Field(
        None,
        description="To how many numbers gradients were projected to compare them; None: they were compared whole.",
    )
    projection_error: float | None = Field(
        None, description="The standard error of a cosine in `agreement` from that, at most; None: there is none."
    )
    tokens: Annotated[list[MovedToken], Field(max_length=MOST_TOKENS)] = Field(
        description="The tokens whose log-prob moved most against their advantage, the furthest first."
    )
    detail: GroupDetail | None = None
    other: OtherUpdate | None = None
