"""What every kind of training shares: how completions are drawn, how weights are stepped, how long, what is kept."""

from math import cos, lcm, pi
from typing import Annotated, Literal

from pydantic import Field

from backend.contract.base import CleanText, Frozen, Misfit

Recipe = Annotated[
    Annotated[str, Field(max_length=64, pattern=r"^[a-z0-9-]+$")] | None,
    Field(description="The recipe that this configuration started from; a label, nothing more."),
]
Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]
EngineName = Literal["native", "transformers", "vllm"]


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
        description="Draw among the k likeliest tokens only; 0 is off. Biases the ratio: log-probs are normalised over the whole vocabulary.",
    )
    top_p: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0,
        description="Draw among the likeliest tokens that make up this probability; 1 is off. Biases the ratio, too.",
    )
    stop: Annotated[list[Annotated[CleanText, Field(min_length=1, max_length=100)]], Field(max_length=8)] = Field(
        default_factory=list, description="Texts that end a completion."
    )


class Curriculum(Frozen):
    """Prompts are drawn in proportion to p (1 − p), where p is a prompt's success rate as far as this run has seen it."""

    half_life: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        50, description="Steps after which what was seen of a prompt counts half: the policy is another by then."
    )
    uniform: Annotated[float, Field(gt=0, le=1)] = Field(
        0.1, description="Share of the prompts that is drawn evenly, so that none is given up for good."
    )


class Sampling(Decoding):
    """Each step draws prompts, and a group of completions for each of them."""

    prompts_per_step: Annotated[int, Field(ge=1, le=8192)] = Field(
        16, description="Prompts, and so groups, in one step."
    )
    group_size: Annotated[int, Field(ge=1, le=1024)] = Field(
        8,
        description="Completions of each prompt. Larger groups are dead less often: with success rate p a share "
        "p^G + (1 − p)^G carries no signal.",
    )
    curriculum: Curriculum | None = Field(
        None, description="Draw the prompts from which the policy can learn most, instead of one after the other."
    )
    engine: EngineName = Field(
        "native",
        description="What draws the completions. native: the worker itself; the same seed gives the same tokens. transformers: "
        "its continuous batching, in the worker. vllm: a server that the worker's operator named. Those two draw in their own "
        "way: the same seed need not give the same tokens.",
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
        "constant", description="constant: the learning rate stays. linear, cosine: it falls to 0 by the last step."
    )
    warmup_steps: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0, description="Steps of rising learning rate: step k, counting from 0, has (k + 1) / warmup_steps of it."
    )
    weight_decay: Annotated[float, Field(ge=0, le=10)] = Field(0.0, description="AdamW's decoupled weight decay.")
    max_grad_norm: Annotated[float, Field(gt=0, le=1e6)] = Field(
        1.0, description="The gradient is scaled down to this norm if it is larger."
    )
    micro_batch_tokens: Annotated[int, Field(ge=16, le=16_777_216)] = Field(
        8192,
        description="Tokens, prompts included, in one forward and backward pass. Smaller takes less memory and never changes the result. "
        "On a CPU a pass is kept below 1.5 GiB even if this allows more: larger ones are not faster.",
    )

    def require_time(self, steps: int) -> None:
        """Raises Misfit if the warm-up is longer than a run of this many steps."""
        if self.warmup_steps > steps:
            text = f"warm-up of {self.warmup_steps} steps is longer than the run of {steps}; shorten it"
            raise Misfit(text, "optimizer.warmup_steps", {"optimizer.warmup_steps": steps // 10})

    def rate_at(self, step: int, *, steps: int) -> float:
        """The learning rate of step `step` (from 0) of `steps`: warm-up, then constant, or falling to 0 by the last step."""
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        done = (step - self.warmup_steps) / max(1, steps - self.warmup_steps)
        if self.schedule == "linear":
            return self.learning_rate * (1 - done)
        if self.schedule == "cosine":
            return self.learning_rate * (1 + cos(pi * done)) / 2
        return self.learning_rate


MICRO_BATCH = "optimizer.micro_batch_tokens"
GIB = 2**30
FLOAT32 = 4  # bytes of a weight that is trained, and of each of its states
ADAMW_STATES = 2  # first and second moment


class Keep(Frozen):
    """Which checkpoints of the run stay on the worker's disk. The newest always does, and each that another run uses."""

    last: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0, description="How many of the newest stay; 0 keeps all. With 2, a run can go on if the newest is damaged."
    )
    every: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0, description="Besides the newest, those whose step is a multiple of this; 0 adds none."
    )
    at_most_gib: Annotated[float, Field(ge=0, le=1_000_000)] = Field(
        0.0,
        description="If the kept checkpoints take more, the oldest are removed first, the best one last; 0 sets no bound. A checkpoint is "
        "written before others go, so the disk holds one more.",
    )
    best: bool = Field(
        True, description="Besides the newest, the one with the best held-out result, if an evaluation ran at its step."
    )

    @property
    def all(self) -> bool:
        """Whether nothing is ever removed."""
        return not self.last and not self.at_most_gib

    def most(self, steps: int, save_every: int) -> int:
        """How many checkpoints of a run lie on the disk at once, at most: one is written before another goes."""
        saved = 1 + (steps - 1) // save_every if save_every else 1
        if not self.last:
            return saved
        multiples = steps // lcm(self.every, save_every) if self.every and save_every else 0
        return min(saved, self.last + multiples + self.best + 1)


class Budget(Frozen):
    """How long to train, when to evaluate and when to save."""

    steps: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        100, description="Each step samples and scores one batch, and updates on it."
    )
    eval_every: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        25,
        description="Steps between evaluations on held-out prompts, which also run before the first step and at the end; 0 turns all of them off.",
    )
    eval_items: Annotated[int, Field(ge=1, le=100_000)] = Field(
        500, description="Held-out prompts in one evaluation, always the same."
    )
    eval_samples: Annotated[int, Field(ge=1, le=256)] = Field(
        1,
        description="Sampled completions of each prompt: pass@1 is the mean success of the samples; pass@k counts a prompt as solved if at least one of its k samples is right.",
    )
    checkpoint_every: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        20,
        description="Steps between saved checkpoints; the last step is always saved. A crash costs at most the steps since the last one. 0 saves at the end only.",
    )
    keep: Keep = Field(default_factory=Keep, description="Which of the checkpoints stay.")
    seed: Seed = Field(0, description="Same seed and same checkpoint give the same next step on CPU.")


class Telemetry(Frozen):
    """Records that are kept besides rewards and texts."""

    token_traces: Literal["all", "periodic", "extremes", "none"] = Field(
        "extremes",
        description="Per-token values: of every completion, of every completion at some steps, of each group's best and worst, or none.",
    )
    trace_every: Annotated[int, Field(ge=1, le=1_000_000)] = Field(10, description="Steps between periodic traces.")
    probe_prompts: Annotated[int, Field(ge=0, le=64)] = Field(
        2,
        description="Held-out prompts, always the same, that get a group every few steps: sampled and scored, never trained on. "
        "They can be followed through the run and compared across runs. 0 samples none.",
    )
    probe_every: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        20, description="Steps between two probes; the last step has one, too."
    )
    logprob_after_update: bool = Field(
        False, description="One more forward pass, to show how the update moved each completion's log-prob."
    )
