"""What a step of training on groups does to the policy: the trainer reports it, and a replay does it again."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from backend.contract.base import Json
from backend.contract.grpo import GrpoConfig
from backend.contract.stored import get
from worker.checkpoint import Tensors, load_reference, load_tensors
from worker.credit import Credit, assign_credit
from worker.evaluation import success
from worker.groups import GroupSampler, OnProgress, PhaseClock, Scored, Scorer, fill_with_live
from worker.learner import Learner, OnPass, Update
from worker.micro_batches import Batch
from worker.policy.policy import Policy
from worker.rollout.draws import Draws
from worker.rollout.engine import Engine, Rollout, quiet
from worker.tasks.items import Items
from worker.tasks.prompt_sampler import PromptSampler


@dataclass(frozen=True)
class Drawn:
    """What a step trains on: scored groups, what is known of their tokens, and what each completion is worth."""

    scored: Scored
    filtered: Scored | None  # what dynamic sampling took out
    batch: Batch
    credit: Credit
    trained_R: Tensor  # False for completions that do not enter the loss

    @property
    def rollouts(self) -> list[Rollout]:
        """All that was sampled."""
        return [part.rollout for part in (self.scored, self.filtered) if part is not None]

    @property
    def prompts(self) -> int:
        """How far the cursor moves: the items that were drawn."""
        return sum(len(rollout.items_P) for rollout in self.rollouts)

    @property
    def tokens(self) -> int:
        """Of prompts and completions."""
        return sum(rollout.token_count + rollout.prompt_tokens for rollout in self.rollouts)

    @property
    def samples(self) -> int:
        """The completions."""
        return sum(rollout.rows for rollout in self.rollouts)

    def why_still(self, config: GrpoConfig) -> str:
        """Why no weight moved: nothing to teach, or what had it was cut and left out of the loss."""
        rows, teaching_R = self.batch.rollout.rows, (self.credit.advantages_R_T != 0).any(-1)
        cut = sum(one.finish_reason == "length" for one in self.batch.rollout.completions_R)
        if config.algorithm.truncated_completions == "keep" or not (cut == rows or (cut and teaching_R.any())):
            return "no group had anything to teach"
        most = config.sampling.max_new_tokens
        return f"{cut} of {rows} completions were cut at {most} tokens and left out (truncated_completions: mask)"


def trained(config: GrpoConfig, credit: Credit, rollout: Rollout) -> Tensor:
    """Which completions enter the loss: unscored ones never do, truncated ones as configured. (R,)"""
    trained_R = torch.from_numpy(~np.isnan(credit.rewards_P_G.flatten()))
    if config.algorithm.truncated_completions == "mask":
        trained_R &= torch.tensor([one.finish_reason == "stop" for one in rollout.completions_R])
    return trained_R


class GroupStep:
    """Draws and learns, step after step. `step` and `cursor` say where a run is; the rest is here and in the policy."""

    def __init__(self, config: GrpoConfig, policy: Policy, engine: Engine, items: Items, scorer: Scorer) -> None:
        self._config, self._policy = config, policy
        self.sampler = GroupSampler(policy, engine, scorer)
        self.learner = Learner(policy, config, engine.make_room)
        self.prompts = PromptSampler(items, config.budget.seed, config.sampling.curriculum)
        self._synced = config.algorithm.needs_reference and config.algorithm.kl.reference == "synced"

    def restore(self, checkpoint: Path, of_trunk: Mapping[str, Json] | None = None) -> None:
        """Put back what a checkpoint has beside the model and the optimizer.

        A fork's first checkpoint is of another run, with the configuration `of_trunk`, which may have had no such reference, and seen no
        such prompts.
        """
        if self._synced:
            if (checkpoint / "reference.safetensors").is_file():
                load_reference(checkpoint, self._policy)
            else:
                self._policy.copy_reference()
        if self._config.sampling.curriculum is not None and self._knows_prompts(of_trunk):
            self.prompts.restore(load_tensors(checkpoint, "prompts"))

    def _knows_prompts(self, of_trunk: Mapping[str, Json] | None) -> bool:
        """Whether a checkpoint of that configuration says what was seen of this run's prompts."""
        if of_trunk is None:
            return True
        before, now = dict(of_trunk), self._config.model_dump(mode="json")
        return get(before, "task") == now["task"] and get(before, "sampling.curriculum") is not None

    def more(self) -> Mapping[str, Tensors | None]:
        """What a checkpoint keeps beside the model and the optimizer, by the names of the files."""
        return {"reference": self._policy.reference_weights if self._synced else None, "prompts": self.prompts.state()}

    def begin(self, step: int) -> None:
        """Renew a reference that follows the policy, where it is due."""
        if self._synced and step % self._config.algorithm.kl.sync_every == 0:
            self._policy.copy_reference()

    def draw(self, step: int, cursor: int, clock: PhaseClock, on_progress: OnProgress) -> Drawn:
        """Sample, score, and say what each completion is worth, with the weights as they are."""
        scored, filtered = self._collect(step, cursor, clock, on_progress)
        batch = self.learner.split(scored.rollout)
        with clock.phase("reference"):
            self.learner.measure_before(batch, on_progress=on_progress)
        credit = assign_credit(self._config, scored.scores, batch.tokens)
        return Drawn(scored, filtered, batch, credit, trained(self._config, credit, batch.rollout))

    def _collect(
        self, step: int, cursor: int, clock: PhaseClock, on_progress: OnProgress
    ) -> tuple[Scored, Scored | None]:
        """The step's groups with their scores, and those that dynamic sampling took out."""
        algorithm, sampling = self._config.algorithm, self._config.sampling

        def sample(count: int, first_group: int) -> Scored:
            """Groups of the next items, after the `first_group` groups that this step has already."""
            return self.sampler.sample_and_score(
                self.prompts.draw(step, cursor=cursor + first_group, count=count),
                sampling.group_size,
                sampling,
                Draws(self._config.budget.seed, "train", step),
                on_progress=on_progress,
                clock=clock,
                logprobs=algorithm.logprobs,
                first_group=first_group,
                step_size=sampling.completions_per_step,
            )

        first = sample(sampling.prompts_per_step, 0)
        if algorithm.dead_groups == "keep":
            return first, None
        return fill_with_live(first, sample, algorithm.advantage, rounds=algorithm.resample_rounds)

    def update(
        self, step: int, drawn: Drawn, clock: PhaseClock, on_progress: OnProgress, on_pass: OnPass = quiet
    ) -> Update:
        """Train on what was drawn, and learn of its prompts for the curriculum."""
        with clock.phase("update"):
            update = self.learner.update(step, drawn.batch, drawn.credit, drawn.trained_R, on_progress, on_pass)
        if self._config.sampling.curriculum is not None:
            for part in (drawn.scored, *([drawn.filtered] if drawn.filtered else [])):
                successes_P_G = success(part.scores, self._config).reshape(-1, part.rollout.group_size)
                self.prompts.see(step, part.rollout.items_P, successes_P_G)
        return update
