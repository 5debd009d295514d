"""The configuration of a run: one frozen, closed, bounded model per kind. Its JSON Schema drives form, command line and docs."""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, model_validator

from backend.contract.algorithm import Algorithm
from backend.contract.base import CleanText, Frozen, Misfit
from backend.contract.model import Model
from backend.contract.reward import Rewards
from backend.contract.task import Arithmetic, Task

MAX_COMPLETIONS_PER_STEP = 65_536

Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]


class Decoding(Frozen):
    """How a completion is drawn from the model."""

    max_new_tokens: Annotated[int, Field(ge=1, le=32_768)] = Field(
        48, description="Completions are cut here (truncated)."
    )
    temperature: Annotated[float, Field(ge=0.01, le=10)] = Field(
        1.0, description="Above 1 flattens the distribution, below 1 sharpens it."
    )
    top_k: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0,
        description="Draw among the k likeliest tokens only; 0 is off. Biases the ratio: log-probs are of all tokens.",
    )
    top_p: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0,
        description="Draw among the likeliest tokens that make up this probability; 1 is off. Biases the ratio, too.",
    )
    stop: Annotated[list[Annotated[CleanText, Field(min_length=1, max_length=100)]], Field(max_length=8)] = Field(
        default_factory=list, description="Texts that end a completion."
    )


class Sampling(Decoding):
    """What one step draws: prompts, and a group of completions for each."""

    prompts_per_step: Annotated[int, Field(ge=1, le=8192)] = Field(
        16, description="Prompts, and so groups, in one step."
    )
    group_size: Annotated[int, Field(ge=2, le=1024)] = Field(
        8,
        description="Completions of each prompt. Larger groups are dead less often: with success rate p a share "
        "p^G + (1 − p)^G carries no signal.",
    )

    @property
    def completions_per_step(self) -> int:
        """Prompts × group size."""
        return self.prompts_per_step * self.group_size


class Optimizer(Frozen):
    """AdamW with float32 master weights."""

    learning_rate: Annotated[float, Field(gt=0, le=1)] = Field(
        5e-5, description="LoRA usually wants about 10 times that of full training."
    )
    schedule: Literal["constant", "linear", "cosine"] = Field(
        "constant", description="How the learning rate falls to 0 by the last step."
    )
    warmup_steps: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0, description="Steps over which the learning rate rises from 0."
    )
    weight_decay: Annotated[float, Field(ge=0, le=10)] = Field(0.0, description="AdamW's decoupled weight decay.")
    max_grad_norm: Annotated[float, Field(gt=0, le=1e6)] = Field(
        1.0, description="The gradient is scaled down to this norm."
    )
    micro_batch_tokens: Annotated[int, Field(ge=16, le=16_777_216)] = Field(
        8192,
        description="Tokens, prompts included, in one forward and backward pass. Less memory if smaller; never another result.",
    )


class Budget(Frozen):
    """How long, and when to look and to save."""

    steps: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        100, description="Each step samples, scores and updates once."
    )
    eval_every: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        25,
        description="Evaluate on held-out items before the first step, every so many steps, and at the end; 0 is never.",
    )
    eval_items: Annotated[int, Field(ge=1, le=100_000)] = Field(
        500, description="Held-out items in one evaluation, always the same."
    )
    eval_samples: Annotated[int, Field(ge=1, le=256)] = Field(
        1, description="Sampled completions of each item: pass@1 is their mean, pass@G needs one success among them."
    )
    checkpoint_every: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        20,
        description="Save every so many steps, and at the end; a crash costs at most the steps since. 0 saves at the end only.",
    )
    seed: Seed = Field(0, description="Same seed and same checkpoint give the same next step on CPU.")


class Telemetry(Frozen):
    """What is kept beside rewards and texts."""

    token_traces: Literal["all", "periodic", "extremes", "none"] = Field(
        "extremes",
        description="Per-token values: of every completion, of every completion at some steps, of each group's best and worst, or none.",
    )
    trace_every: Annotated[int, Field(ge=1, le=1_000_000)] = Field(10, description="The steps kept by periodic.")
    logprob_after_update: bool = Field(
        False, description="One more forward pass, to show how the update moved each completion's log-prob."
    )


class GrpoConfig(Frozen):
    """A run that trains a policy on groups."""

    schema_version: Literal[1] = 1
    kind: Literal["grpo"] = "grpo"
    recipe: Annotated[str, Field(max_length=64, pattern=r"^[a-z0-9-]+$")] | None = Field(
        None, description="The recipe that this configuration started from; a label, nothing more."
    )
    model: Model = Field(default_factory=Model)
    task: Task = Field(default_factory=Arithmetic)
    rewards: Rewards = Field(default_factory=Rewards)
    sampling: Sampling = Field(default_factory=Sampling)
    algorithm: Algorithm = Field(default_factory=Algorithm)
    optimizer: Optimizer = Field(default_factory=Optimizer)
    budget: Budget = Field(default_factory=Budget)
    telemetry: Telemetry = Field(default_factory=Telemetry)

    @model_validator(mode="after")
    def _fits_together(self) -> "GrpoConfig":
        sampling, budget = self.sampling, self.budget
        if sampling.completions_per_step > MAX_COMPLETIONS_PER_STEP:
            raise Misfit(
                f"{sampling.prompts_per_step} prompts × {sampling.group_size} completions are "
                f"{sampling.completions_per_step:,} completions a step; at most {MAX_COMPLETIONS_PER_STEP:,} fit: lower one",
                "sampling.prompts_per_step",
                {"sampling.prompts_per_step": MAX_COMPLETIONS_PER_STEP // sampling.group_size},
            )
        if self.optimizer.warmup_steps > budget.steps:
            raise Misfit(
                f"warm-up of {self.optimizer.warmup_steps} steps is longer than the run of {budget.steps}; shorten it",
                "optimizer.warmup_steps",
                {"optimizer.warmup_steps": budget.steps // 10},
            )
        if self.optimizer.micro_batch_tokens <= sampling.max_new_tokens:
            raise Misfit(
                f"a micro-batch of {self.optimizer.micro_batch_tokens} tokens cannot hold one completion of "
                f"{sampling.max_new_tokens} and its prompt; raise micro_batch_tokens above {sampling.max_new_tokens}",
                "optimizer.micro_batch_tokens",
                {"optimizer.micro_batch_tokens": 4 * sampling.max_new_tokens},
            )
        if self.task.kind == "dataset" and self.task.held_out == 0 and budget.eval_every:
            raise Misfit(
                f"evaluation every {budget.eval_every} steps needs held-out items, and held_out is 0; "
                "raise held_out or set eval_every to 0",
                "task.held_out",
                {"task.held_out": 0.1},
            )
        needs_answer = [f.name for f in self.rewards.functions if f.kind == "correctness"]
        if self.task.kind == "dataset" and self.task.answer_column is None and needs_answer:
            raise Misfit(
                f"the reward {needs_answer[0]!r} compares with a reference answer, and the data set has no answer_column; name it",
                "task.answer_column",
            )
        return self


class SampleConfig(Frozen):
    """One group for each of a few prompts, scored where rewards are given, and not trained on: try a model or checkpoint."""

    schema_version: Literal[1] = 1
    kind: Literal["sample"] = "sample"
    model: Model = Field(default_factory=Model)
    prompts: Annotated[
        list[Annotated[CleanText, Field(min_length=1, max_length=20_000)]], Field(min_length=1, max_length=16)
    ]
    answer: Annotated[CleanText, Field(max_length=20_000)] | None = Field(
        None, description="The reference answer, for correctness."
    )
    system_prompt: Annotated[CleanText, Field(max_length=20_000)] | None = None
    prompt_format: Literal["chat", "raw"] = "chat"
    group_size: Annotated[int, Field(ge=1, le=64)] = Field(8, description="Completions of each prompt.")
    decoding: Decoding = Field(default_factory=Decoding)
    rewards: Rewards | None = Field(None, description="Scores the completions; none shows them as they are.")
    seed: Seed = 0


RunConfig = Annotated[GrpoConfig | SampleConfig, Field(discriminator="kind")]
RUN_CONFIG: TypeAdapter[GrpoConfig | SampleConfig] = TypeAdapter(RunConfig)
