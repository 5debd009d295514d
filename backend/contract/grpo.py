"""A run that trains a policy on groups, and the rules across its parts."""

from typing import Literal

from pydantic import Field, model_validator

from backend.contract.algorithm import Algorithm
from backend.contract.base import Frozen, Misfit
from backend.contract.compute import Compute
from backend.contract.model import Model
from backend.contract.reward import Rewards, reward_bound
from backend.contract.task import Arithmetic, Task, require_held_out
from backend.contract.training import MICRO_BATCH, Budget, Optimizer, Recipe, Sampling, Telemetry

MAX_COMPLETIONS_PER_STEP = 65_536


class GrpoConfig(Frozen):
    """A run that trains a policy on groups."""

    schema_version: Literal[1] = 1
    kind: Literal["grpo"] = "grpo"
    recipe: Recipe = None
    model: Model = Field(default_factory=Model)
    task: Task = Field(default_factory=Arithmetic)
    rewards: Rewards = Field(default_factory=Rewards)
    sampling: Sampling = Field(default_factory=Sampling)
    algorithm: Algorithm = Field(default_factory=Algorithm)
    optimizer: Optimizer = Field(default_factory=Optimizer)
    budget: Budget = Field(default_factory=Budget)
    telemetry: Telemetry = Field(default_factory=Telemetry)
    compute: Compute = Field(default_factory=Compute)

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
        self.optimizer.require_time(budget.steps)
        if self.optimizer.micro_batch_tokens <= sampling.max_new_tokens:
            text = (
                f"a micro-batch of {self.optimizer.micro_batch_tokens} tokens cannot hold one completion of "
                f"{sampling.max_new_tokens} and its prompt; raise micro_batch_tokens above {sampling.max_new_tokens}"
            )
            raise Misfit(text, MICRO_BATCH, {MICRO_BATCH: 4 * sampling.max_new_tokens})
        if self.task.kind == "dataset" and budget.eval_every:
            require_held_out(self.task.held_out, "task.held_out", budget.eval_every)
        self._groups_are_large_enough()
        self._engine_measures_what_is_asked()
        self._success_is_known()
        self.rewards.require_answers(self.task)
        return self

    def _groups_are_large_enough(self) -> None:
        size, advantage = self.sampling.group_size, self.algorithm.advantage
        if size < 2 and (advantage.compares == "group" or self.algorithm.dead_groups == "resample"):
            why = advantage.kind if advantage.compares == "group" else "dead_groups resample"
            text = f"{why} compares a completion with its siblings, and a group of {size} has none; use at least 2"
            raise Misfit(text, "sampling.group_size", {"sampling.group_size": 8})
        if advantage.reads == "components" and self.rewards.gates:
            text = f"{advantage.kind} normalises each reward function by itself, and a gate would drop scores of one because of another; remove the gates"
            raise Misfit(text, "rewards.gates", {"rewards.gates": []})

    def _success_is_known(self) -> None:
        """A curriculum needs to know how far a completion succeeded."""
        if self.sampling.curriculum is None or any(one.kind == "correctness" for one in self.rewards.functions):
            return
        if reward_bound(self.model_dump(mode="json")) is None:
            text = "a curriculum needs a success rate, and no reward says what is right or has a highest score; add correctness (its weight may be 0)"
            raise Misfit(text, "sampling.curriculum", {"sampling.curriculum": None})

    def _engine_measures_what_is_asked(self) -> None:
        """Only the native engine draws from one distribution and measures another."""
        sampling, logprobs = self.sampling, self.algorithm.logprobs
        if logprobs == "renormalized" and not sampling.top_k and sampling.top_p == 1:
            text = "renormalized log-probs are over what top-k and top-p left, and both are off (top_k 0, top_p 1); use tempered"
            raise Misfit(text, "algorithm.logprobs", {"algorithm.logprobs": "tempered"})
        if sampling.engine == "native":
            return
        why: str | None = None
        if sampling.engine == "transformers" and self.compute.processes > 1:
            why = f"samples for one process, and this run has {self.compute.processes}"
        elif logprobs == "renormalized":
            why = "does not tell which tokens top-k and top-p left, and renormalized log-probs are over those"
        elif sampling.top_k or sampling.top_p < 1:
            cut = f"top-k {sampling.top_k}" if sampling.top_k else f"top-p {sampling.top_p:g}"
            why = f"gives log-probs over what {cut} left, and {logprobs} ones are over all tokens"
        elif logprobs == "plain" and sampling.temperature != 1:
            why = f"gives log-probs at the temperature that it draws at ({sampling.temperature:g}), and plain ones are at 1"
        if why is not None:
            text = f"the {sampling.engine} engine {why}; use native"
            raise Misfit(text, "sampling.engine", {"sampling.engine": "native"})
