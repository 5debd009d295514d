"""The GRPO loop: draw prompts, sample a group for each, score, compare within the group, update, report. Then again."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from backend.contract.groups import GroupReport
from backend.contract.grpo import GrpoConfig
from worker.checkpoint import TrainingState, load_optimizer, load_reference, load_state
from worker.credit import Credit, assign_credit
from worker.errors import Interrupted
from worker.evaluation import evaluate
from worker.groups import GroupSampler, Scored, fill_with_live
from worker.learner import Learner, Update
from worker.micro_batches import Batch
from worker.phase_clock import PhaseClock
from worker.policy.device import peak_memory
from worker.policy.policy import Policy
from worker.probes import probe_items, sample_probes
from worker.reporter import Channels, Ending, Place, Reporter
from worker.rewards.scoring import RewardScorer
from worker.rollout.draws import Draws
from worker.rollout.engine import Engine, Rollout
from worker.saver import Saver
from worker.step_report import FinishedStep, describe
from worker.tasks.items import Items, draw, held_out
from worker.token_texts import TokenTexts


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
        self._sampler, self._channels = GroupSampler(policy, engine, scorer), channels
        self._learner = Learner(policy, config, engine.make_room)
        self._token_texts = TokenTexts(policy.tokenizer)
        self._state = TrainingState(step=0, cursor=0, num_tokens=0, samples=0, elapsed_seconds=0.0)
        if place.resume is not None:
            self._state = load_state(place.resume)
            load_optimizer(place.resume, policy, self._learner.optimizer)
            if self._synced:
                load_reference(place.resume, policy)
        budget = config.budget
        self._reporter = Reporter(place, channels, total_steps=budget.steps, elapsed=self._state.elapsed_seconds)
        self._saver = Saver(
            place,
            self._reporter,
            policy,
            self._learner.optimizer,
            budget=budget,
            saved_step=self._state.step,
        )
        self._clock = PhaseClock()
        self._last_report_seconds = 0.0

    def run(self) -> Ending:
        """Train to the end, to the step boundary after a request, or to where a shutdown finds the weights untouched."""
        with self._saver, self._reporter:  # left when all is told and saved, or with what went wrong there
            try:
                return self._run()
            except Interrupted as interrupted:  # the step is drawn again, exactly so, by whoever goes on
                self._save_if_new()
                return interrupted.ending

    def _run(self) -> Ending:
        self._announce()
        self._saver.warn_if_short()
        for step in range(self._state.step, self._config.budget.steps):
            ending = self._reporter.asked_to_end()
            if ending is not None:
                self._save_if_new()
                return ending
            self._evaluate_if_due(step)
            self._sync_reference_if_due(step)
            probes = self._probe_if_due(step)
            self._clock = PhaseClock()
            scored, filtered = self._collect(step)
            batch = self._look(scored.rollout)
            credit = assign_credit(self._config, scored.scores, batch.tokens)
            update = self._update(step, batch, credit)
            self._advance(scored, filtered)
            self._report(step, scored, filtered, batch, credit, update, probes)
            self._saver.save_if_due(self._state, self._followed)
            self._channels.between_steps()
        self._evaluate_if_due(self._config.budget.steps)
        self._save_if_new()
        return "finished"

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
            draw(self._items.train, cursor=self._state.cursor + first_group, count=count, seed=seed),
            sampling.group_size,
            sampling,
            Draws(seed, "train", step),
            on_progress=self._show,
            clock=self._clock,
            logprobs=self._config.algorithm.logprobs,
            first_group=first_group,
            step_size=sampling.completions_per_step,
        )

    def _look(self, rollout: Rollout) -> Batch:
        batch = self._learner.split(rollout)
        with self._clock.phase("reference"):
            self._learner.look(batch, on_progress=self._show)
        return batch

    def _update(self, step: int, batch: Batch, credit: Credit) -> Update:
        with self._clock.phase("update"):
            update = self._learner.update(
                step, batch, credit, self._trained(batch.rollout, credit), on_progress=self._show
            )
        if update.fault:
            self._reporter.log("warning", f"step {step}: {update.fault} was not finite, so the update was not applied")
        elif not update.moved:
            self._reporter.log("info", f"step {step}: no group had anything to teach, so the weights stayed")
        return update

    def _trained(self, rollout: Rollout, credit: Credit) -> Tensor:
        """Which completions enter the loss: unscored ones never do, truncated ones as configured. Shape (R,)."""
        trained_R = ~credit.rewards_P_G.flatten().isnan()
        if self._config.algorithm.truncated_completions == "mask":
            trained_R &= torch.tensor([completion.finish_reason == "stop" for completion in rollout.completions_R])
        return trained_R

    def _advance(self, scored: Scored, filtered: Scored | None) -> None:
        rollouts = [part.rollout for part in (scored, filtered) if part is not None]
        self._state = replace(
            self._state,
            step=self._state.step + 1,
            cursor=self._state.cursor + sum(len(rollout.items_P) for rollout in rollouts),
            num_tokens=self._state.num_tokens
            + sum(rollout.token_count + rollout.prompt_tokens for rollout in rollouts),
            samples=self._state.samples + sum(rollout.rows for rollout in rollouts),
        )

    # ---- the reference that follows the policy

    @property
    def _synced(self) -> bool:
        algorithm = self._config.algorithm
        return algorithm.needs_reference and algorithm.kl.reference == "synced"

    @property
    def _followed(self) -> Mapping[str, Tensor] | None:
        """The reference's weights, where they belong into a checkpoint."""
        return self._policy.reference_weights if self._synced else None

    def _sync_reference_if_due(self, step: int) -> None:
        if self._synced and step % self._config.algorithm.kl.sync_every == 0:
            self._policy.copy_reference()

    # ---- what is told

    def _announce(self) -> None:
        trained = sum(parameter.numel() for _, parameter in self._policy.named_parameters())
        self._reporter.start(
            self._state.step,
            f"{trained:,} trained parameters, {len(self._items.train):,} items to train on, "
            f"{len(self._items.held_out):,} held out",
        )

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
        self._say_how_it_computes(step)
        self._clock.add("report", self._last_report_seconds)
        measured = self._clock.metrics(scored.rollout.token_count + (filtered.rollout.token_count if filtered else 0))
        measured |= self._scorer.take_metrics()
        measured |= {"num_tokens": float(self._state.num_tokens), "num_samples": float(self._state.samples)}
        measured["peak_memory"] = peak_memory(self._policy.device)
        finished = FinishedStep(step, scored, filtered, batch.tokens, credit, update, measured, probes)
        self._reporter.step(step, lambda: describe(finished, self._config, self._token_texts))
        self._last_report_seconds = time.monotonic() - began  # told with the next step: this one is on its way

    def _say_how_it_computes(self, step: int) -> None:
        """Where a fast path was given up, and where a resumed run goes on by other paths than before."""
        while self._policy.remarks:
            self._reporter.log("warning", self._policy.remarks.pop(0))
        before, now = self._state.computed_by, self._policy.computed_by
        if before not in ("", now):
            self._reporter.log(
                "info", f"from step {step} computed by {now}, before by {before}: numbers differ in rounding"
            )
        self._state = replace(self._state, computed_by=now)

    def _evaluate_if_due(self, step: int) -> None:
        budget = self._config.budget
        if not budget.eval_every or (step % budget.eval_every and step != budget.steps):
            return
        items = held_out(self._items, budget.eval_items)
        total = len(items) * (budget.eval_samples + 1)
        metrics = evaluate(self._sampler, items, self._config, lambda done: self._show("evaluation", done, total))
        self._reporter.metrics(step, metrics)
        if "eval/pass@1" in metrics:
            about = f"pass@1 {metrics['eval/pass@1']:.3f} on {len(items)} held-out items"
            self._reporter.log("info", f"after {step} steps: {about}")

    def _probe_if_due(self, step: int) -> Sequence[GroupReport]:
        items = probe_items(self._items, self._config, step)
        return sample_probes(self._sampler, items, self._config, self._show) if items else []

    def _show(self, phase: str, done: int, total: int) -> None:
        self._reporter.show(self._state.step, phase, done, total)

    def _save_if_new(self) -> None:
        self._saver.save_if_new(self._state, self._followed)
