"""The GRPO loop: draw prompts, sample a group for each, score, compare within the group, update, report. Then again."""

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from backend.contract.groups import GroupReport
from backend.contract.grpo import GrpoConfig
from backend.contract.records import MOST_BY_RANK
from backend.contract.stored import get
from backend.contract.token_texts import TokenTexts
from worker.attempt import Attempt
from worker.checkpoint import load_reference, load_tensors
from worker.credit import Credit, assign_credit
from worker.evaluation import evaluate, sample_probes, success
from worker.groups import GroupSampler, PhaseClock, Scored, fill_with_live
from worker.learner import Learner, Update
from worker.micro_batches import Batch
from worker.policy.device import peak_memory
from worker.policy.policy import Policy
from worker.reporter import Channels, Ending, Place
from worker.rewards.scoring import RewardScorer
from worker.rollout.draws import Draws
from worker.rollout.engine import Engine
from worker.step_report import FinishedStep, by_rank, describe
from worker.tasks.items import Items
from worker.tasks.prompt_sampler import PromptSampler


class Trainer:
    """Trains one policy for one attempt of one run."""

    def __init__(
        self,
        config: GrpoConfig,
        policy: Policy,
        engine: Engine,
        items: Items,
        scorer: RewardScorer,
        place: Place,
        channels: Channels,
    ) -> None:
        self._config, self._policy, self._items, self._scorer = config, policy, items, scorer
        self._sampler = GroupSampler(policy, engine, scorer)
        self._learner = Learner(policy, config, engine.make_room)
        self._token_texts = TokenTexts(policy.tokenizer)
        self._synced = config.algorithm.needs_reference and config.algorithm.kl.reference == "synced"
        # Without `self` in it: a cycle would keep the run's memory when the run has ended.
        prompts = self._prompts = PromptSampler(items, config.budget.seed, config.sampling.curriculum)
        synced = self._synced
        self._attempt = Attempt(
            place,
            channels,
            policy,
            self._learner.optimizer,
            config.budget,
            lambda: {"reference": policy.reference_weights if synced else None, "prompts": prompts.state()},
        )
        # A fork's first checkpoint is of another run, which may have had no such reference, and seen no such prompts.
        if self._synced and place.resume is not None:
            if (place.resume / "reference.safetensors").is_file():
                load_reference(place.resume, policy)
            else:
                policy.copy_reference()
        if config.sampling.curriculum is not None and place.resume is not None and self._knows_prompts(place):
            prompts.restore(load_tensors(place.resume, "prompts"))
        self._clock, self._worked = PhaseClock(), channels.worked
        self._last_report_seconds = 0.0

    def _knows_prompts(self, place: Place) -> bool:
        """Whether the checkpoint says what was seen of this run's prompts."""
        if place.of_trunk is None:
            return True
        before, now = dict(place.of_trunk), self._config.model_dump(mode="json")
        return get(before, "task") == now["task"] and get(before, "sampling.curriculum") is not None

    def run(self) -> Ending:
        """Train to the end, to the step boundary after a request, or to where a shutdown finds the weights untouched."""
        with self._attempt.opened():
            train, held = len(self._items.train), len(self._items.held_out)
            several = "" if self._policy.ranks.alone else f"{self._policy.ranks.count} processes, "
            self._attempt.start(f"{several}{train:,} prompts to train on, {held:,} held out")
            for step in self._attempt.steps(self._evaluate):
                if self._synced and step % self._config.algorithm.kl.sync_every == 0:
                    self._policy.copy_reference()
                probes = sample_probes(self._sampler, self._items, self._config, step, self._attempt.show)
                self._clock = PhaseClock()
                scored, filtered = self._collect(step)
                batch = self._learner.split(scored.rollout)
                with self._clock.phase("reference"):
                    self._learner.measure_before(batch, on_progress=self._attempt.show)
                credit = assign_credit(self._config, scored.scores, batch.tokens)
                update = self._update(step, batch, credit)
                self._learn_of_prompts(step, scored, filtered)
                self._advance(scored, filtered)
                self._report(step, scored, filtered, batch, credit, update, probes)
        return self._attempt.ending

    # ---- the phases of a step

    def _collect(self, step: int) -> tuple[Scored, Scored | None]:
        """The step's groups with their scores, and those that dynamic sampling took out."""
        algorithm, count = self._config.algorithm, self._config.sampling.prompts_per_step
        first = self._sample_and_score(step, count, 0)
        if algorithm.dead_groups == "keep":
            return first, None
        return fill_with_live(
            first,
            lambda count, first_group: self._sample_and_score(step, count, first_group),
            algorithm.advantage,
            rounds=algorithm.resample_rounds,
        )

    def _sample_and_score(self, step: int, count: int, first_group: int) -> Scored:
        """Groups of the next items, after the `first_group` groups that this step has already."""
        sampling, seed = self._config.sampling, self._config.budget.seed
        return self._sampler.sample_and_score(
            self._prompts.draw(step, cursor=self._attempt.state.cursor + first_group, count=count),
            sampling.group_size,
            sampling,
            Draws(seed, "train", step),
            on_progress=self._attempt.show,
            clock=self._clock,
            logprobs=self._config.algorithm.logprobs,
            first_group=first_group,
            step_size=sampling.completions_per_step,
        )

    def _update(self, step: int, batch: Batch, credit: Credit) -> Update:
        # Which completions enter the loss: unscored ones never do, truncated ones as configured.
        trained_R = torch.from_numpy(~np.isnan(credit.rewards_P_G.flatten()))
        if self._config.algorithm.truncated_completions == "mask":
            trained_R &= torch.tensor([one.finish_reason == "stop" for one in batch.rollout.completions_R])
        with self._clock.phase("update"):
            update = self._learner.update(step, batch, credit, trained_R, on_progress=self._attempt.show)
        self._attempt.warn(step, self._policy.remarks, update.fault)
        if update.applied and not update.moved:
            self._attempt.reporter.log("info", f"step {step}: no group had anything to teach, so the weights stayed")
        return update

    def _learn_of_prompts(self, step: int, scored: Scored, filtered: Scored | None) -> None:
        """What the step shows of each prompt's success, for the curriculum."""
        if self._config.sampling.curriculum is not None:
            for part in (scored, *([filtered] if filtered else [])):
                successes_P_G = success(part.scores, self._config).reshape(-1, part.rollout.group_size)
                self._prompts.see(step, part.rollout.items_P, successes_P_G)

    def _advance(self, scored: Scored, filtered: Scored | None) -> None:
        rollouts = [part.rollout for part in (scored, filtered) if part is not None]
        self._attempt.advance(
            drawn=sum(len(rollout.items_P) for rollout in rollouts),
            tokens=sum(rollout.token_count + rollout.prompt_tokens for rollout in rollouts),
            samples=sum(rollout.rows for rollout in rollouts),
        )

    # ---- what is reported

    def _report(
        self,
        step: int,
        scored: Scored,
        filtered: Scored | None,
        batch: Batch,
        credit: Credit,
        update: Update,
        probes: Sequence[GroupReport],
    ) -> None:
        began = time.monotonic()
        self._note_how_it_computes(step)
        costs = self._scorer.take_metrics(self._policy.ranks)
        ranks, worked = self._policy.ranks, self._clock.worked
        self._worked(worked)
        own = peak_memory(self._policy.device), sum(worked.values()), self._clock.tokens
        peaks, seconds, tokens = zip(*ranks.gather(own), strict=True)
        if not ranks.first:
            return
        state = self._attempt.state
        self._clock.add("report", self._last_report_seconds)
        measured = self._clock.metrics(scored.rollout.token_count + (filtered.rollout.token_count if filtered else 0))
        measured |= costs | self._prompts.metrics()
        measured |= {"num_tokens": float(state.num_tokens), "num_samples": float(state.samples)}
        measured["peak_memory"] = sum(peaks) if self._policy.device.type == "cpu" else max(peaks)
        if 1 < ranks.count <= MOST_BY_RANK:
            measured |= by_rank(seconds=seconds, tokens=tokens)
        finished = FinishedStep(step, scored, filtered, batch.tokens, credit, update, measured, probes)
        self._attempt.reporter.step(step, lambda: describe(finished, self._config, self._token_texts))
        self._last_report_seconds = time.monotonic() - began  # reported with the next step: this one is on its way

    def _note_how_it_computes(self, step: int) -> None:
        """Keep by which paths the model is computed, and log that a resumed run takes others than before."""
        state, now = self._attempt.state, self._policy.computed_by
        if state.computed_by not in ("", now):
            self._attempt.reporter.log(
                "info", f"from step {step} computed by {now}, before by {state.computed_by}: numbers differ in rounding"
            )
        self._attempt.state = replace(state, computed_by=now)

    def _evaluate(self) -> tuple[dict[str, float], str]:
        budget = self._config.budget
        items = self._items.held_out[: budget.eval_items]  # whatever the seed, so that evaluations compare
        total = len(self._policy.ranks.share(len(items))) * (budget.eval_samples + 1)
        metrics = evaluate(
            self._sampler, items, self._config, lambda done: self._attempt.show("evaluation", done, total)
        )
        right = metrics.get("eval/pass@1")
        return metrics, "" if right is None else f"pass@1 {right:.3f} on {len(items)} held-out prompts"
