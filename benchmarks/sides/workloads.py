"""The work that is measured: configurations of the product, and how many steps of each."""

from dataclasses import dataclass, replace

from backend.contract.base import Json
from backend.contract.grpo import GrpoConfig
from backend.contract.model import Model
from backend.contract.recipes import QUICKSTART, RECIPES, SMOLLM2
from backend.contract.reward import Correctness, Rewards
from backend.contract.task import Arithmetic
from backend.contract.training import Budget, Optimizer, Sampling, Telemetry
from sides.messages import Job, Lengths

TINY = "builtin:tiny-arithmetic"
WARM_UP = 1  # steps before those that count


@dataclass(frozen=True)
class Workload:
    """What both sides do. `batch` is TRL's per_device_train_batch_size."""

    name: str
    about: str
    config: GrpoConfig
    steps: int  # that count
    batch: int
    lengths: Lengths = "model"
    rows: str = ""  # JSONL, for a task of the kind `dataset`
    threads: int | None = 2  # None: torch's own choice
    accelerator: bool = False

    def job(self, telemetry: dict[str, Json] | None = None) -> Job:
        """The work of a side, with a step more than will be asked for: it never gets to its end."""
        steps = max(WARM_UP + self.steps + 1, self.config.optimizer.warmup_steps)
        budget = self.config.budget.model_copy(update={"steps": steps, "eval_every": 0, "checkpoint_every": 0})
        changed = self.config.telemetry.model_copy(update={"probe_prompts": 0, **(telemetry or {})})
        config = self.config.model_copy(update={"budget": budget, "telemetry": changed}).model_dump(mode="json")
        same = {name: getattr(self, name) for name in ("rows", "lengths", "batch", "threads", "accelerator")}
        return Job(config=config, **same)


def _worked_examples(count: int) -> str:
    """A system prompt that shows this number of sums and their answers."""
    sums = ((7 * number % 19 + 1, 11 * number % 17 + 1) for number in range(count))
    shown = " ".join(f"What is {left} + {right}? It is {left + right}." for left, right in sums)
    return f"You add numbers. {shown}"


def _smollm2(sampling: Sampling, system_prompt: str | None = None) -> GrpoConfig:
    """The recipe `smollm2-arithmetic`, with a prompt of another length."""
    return GrpoConfig(
        model=Model(source=SMOLLM2, dtype="float32"),
        task=Arithmetic(
            operands=2,
            low=1,
            high=20,
            operators=["+"],
            precedence=False,
            template="What is {expression}? Say how you know it, please.",
            system_prompt=system_prompt,
        ),
        rewards=Rewards(functions=[Correctness(name="correctness", extract="last_number", match="numeric")]),
        sampling=sampling,
        optimizer=Optimizer(learning_rate=1e-5),
        telemetry=Telemetry(),
    )


REFERENCE = Workload(
    "reference",
    "SmolLM2-135M-Instruct, 4 × 8 completions, about 47 prompt tokens, at most 24 new",
    _smollm2(Sampling(prompts_per_step=4, group_size=8, max_new_tokens=24)),
    steps=5,
    batch=32,
)
LONG = Workload(
    "long prompts",
    "the same with about 360 prompt tokens, at most 32 new",
    _smollm2(Sampling(prompts_per_step=4, group_size=8, max_new_tokens=32), _worked_examples(22)),
    steps=3,
    batch=8,
)
QUICKSTART_WORK = Workload(
    "quickstart",
    "builtin:tiny-arithmetic, the recipe `grpo`: 16 × 8 completions, at most 48 new",
    GrpoConfig.model_validate(next(card.config for card in RECIPES if card.id == QUICKSTART)),
    steps=60,  # memory is claimed anew in the first twenty or thirty: the run has 200
    batch=128,
)
MEMORY = Workload(
    "memory",
    "SmolLM2-135M-Instruct, 1 × 16 completions of exactly 512 new tokens, the product's defaults",
    _smollm2(Sampling(prompts_per_step=1, group_size=16, max_new_tokens=512)),
    steps=1,
    batch=16,
    lengths="fixed",
)
LEARNING = Workload(
    "learning",
    "the quickstart, with every completion of its first step traced",
    QUICKSTART_WORK.config.model_copy(
        update={"telemetry": Telemetry.model_validate({"token_traces": "periodic", "trace_every": 1_000_000})}
    ),
    steps=QUICKSTART_WORK.config.budget.steps - WARM_UP,
    batch=128,
)


def with_seed(work: Workload, seed: int) -> Workload:
    """The same work with other draws."""
    budget: Budget = work.config.budget.model_copy(update={"seed": seed})
    return replace(work, config=work.config.model_copy(update={"budget": budget}))


def on_the_tiny_model(work: Workload) -> Workload:
    """A trial of the benchmark itself, in seconds: the tiny model, short prompts, few tokens and steps."""
    task = work.config.task.model_copy(update={"system_prompt": None, "template": "Calculate {expression}"})
    new = min(work.config.sampling.max_new_tokens, 32)
    sampling = work.config.sampling.model_copy(update={"max_new_tokens": new})
    model = work.config.model.model_copy(update={"source": TINY})
    config = work.config.model_copy(update={"task": task, "sampling": sampling, "model": model})
    return replace(work, config=config, steps=min(work.steps, 2))
