"""How large the database is, and what lies in it."""

from dataclasses import dataclass, replace
from typing import Literal

Role = Literal["large", "long", "live", "short"]

STANDARD = (
    "reward", "reward_std", "group_reward_std", "frac_reward_zero_std", "frac_filtered", "frac_unscored",
    "rewards/correctness/mean", "rewards/correctness/std", "rewards/format/mean", "rewards/format/std",
    "rewards/length/mean", "rewards/length/std", "completions/mean_length", "completions/min_length",
    "completions/max_length", "completions/clipped_ratio", "num_tokens", "loss", "grad_norm", "learning_rate", "kl",
    "entropy", "ratio_mean", "clip_ratio/low_mean", "clip_ratio/high_mean", "sampling_logprob_diff", "step_time",
    "time/rollout", "time/reward", "time/reference", "time/update", "time/report", "tokens_per_second",
)  # fmt: skip
METRICS = (*STANDARD, *(f"custom/{number:02}" for number in range(1, 51 - len(STANDARD))))


@dataclass(frozen=True)
class RunPlan:
    """One run. Its groups lie at every `grouped_every`-th step."""

    role: Role
    seed: int
    steps: int
    grouped_every: int
    groups: int
    group_size: int
    prompts: int  # that its groups are drawn from
    total_steps: int
    rare_every: int  # completions, of which one has the rare word

    @property
    def name(self) -> str:
        """Says what it is there for."""
        return f"{self.role} {self.seed}"

    def has_groups(self, step: int) -> bool:
        """Whether groups of this step are kept."""
        return step % self.grouped_every == 0


@dataclass(frozen=True)
class Plan:
    """A database: one large run, some to compare it with, one under way, and many short ones."""

    runs: int
    steps: int  # of the large run, each with all metrics
    grouped_steps: int  # of them, those with groups
    groups: int
    group_size: int
    prompts: int
    long_steps: int
    short_steps: int
    rare_every: int

    def run_plans(self) -> list[RunPlan]:
        """All runs, in the order in which they are made."""
        long, short = min(19, self.runs - 2), max(0, self.runs - 21)
        every = self.steps // self.grouped_steps
        return [
            *(self._small("short", seed, self.short_steps) for seed in range(short)),
            *(self._small("long", seed, self.long_steps) for seed in range(long)),
            replace(self._small("live", 0, self.long_steps), grouped_every=1, total_steps=1_000_000),
            RunPlan(
                "large", 0, self.steps, every, self.groups, self.group_size, self.prompts, self.steps, self.rare_every
            ),
        ]

    def _small(self, role: Role, seed: int, steps: int) -> RunPlan:
        return RunPlan(role, seed, steps, 10, 8, 4, 200, steps, self.rare_every)


FULL = Plan(
    runs=100, steps=10_000, grouped_steps=1_000, groups=64, group_size=8, prompts=2_000,
    long_steps=1_000, short_steps=100, rare_every=20_000,
)  # fmt: skip
TRIAL = Plan(
    runs=5,
    steps=200,
    grouped_steps=20,
    groups=8,
    group_size=4,
    prompts=20,
    long_steps=50,
    short_steps=20,
    rare_every=50,
)
