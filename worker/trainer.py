"""The GRPO loop: draw prompts, sample a group for each, score, compare within the group, update, report. Then again."""

import time
from collections.abc import Sequence
from dataclasses import replace

from backend.contract.groups import GroupReport
from backend.contract.grpo import GrpoConfig
from backend.contract.records import MOST_BY_RANK
from backend.contract.token_texts import TokenTexts
from worker.attempt import Attempt
from worker.evaluation import evaluate, sample_probes
from worker.group_step import Drawn, GroupStep
from worker.groups import PhaseClock
from worker.learner import Update
from worker.policy.device import peak_memory
from worker.policy.policy import Policy
from worker.reporter import Channels, Ending, Place
from worker.rewards.scoring import RewardScorer
from worker.rollout.engine import Engine
from worker.step_report import FinishedStep, by_rank, describe
from worker.tasks.items import Items


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
        self._step = GroupStep(config, policy, engine, items, scorer)
        self._token_texts = TokenTexts(policy.tokenizer)
        # The step's, not the trainer's: a cycle would keep the run's memory when the run has ended.
        self._attempt = Attempt(place, channels, policy, self._step.learner.optimizer, config.budget, self._step.more)
        if place.resume is not None:
            self._step.restore(place.resume, place.of_trunk)
        self._clock, self._worked = PhaseClock(), channels.worked
        self._last_report_seconds = 0.0

    def run(self) -> Ending:
        """Train to the end, to the step boundary after a request, or to where a shutdown finds the weights untouched."""
        with self._attempt.opened():
            train, held = len(self._items.train), len(self._items.held_out)
            several = "" if self._policy.ranks.alone else f"{self._policy.ranks.count} processes, "
            self._attempt.start(f"{several}{train:,} prompts to train on, {held:,} held out")
            for step in self._attempt.steps(self._evaluate):
                self._step.begin(step)
                probes = sample_probes(self._step.sampler, self._items, self._config, step, self._attempt.show)
                self._clock = PhaseClock()
                drawn = self._step.draw(step, self._attempt.state.cursor, self._clock, self._attempt.show)
                update = self._update(step, drawn)
                self._attempt.advance(drawn=drawn.prompts, tokens=drawn.tokens, samples=drawn.samples)
                self._report(step, drawn, update, probes)
        return self._attempt.ending

    def _update(self, step: int, drawn: Drawn) -> Update:
        update = self._step.update(step, drawn, self._clock, self._attempt.show)
        self._attempt.warn(step, self._policy.remarks, update.fault)
        if update.applied and not update.moved:
            self._attempt.reporter.log("info", f"step {step}: {drawn.why_still(self._config)}, so the weights stayed")
        return update

    # ---- what is reported

    def _report(self, step: int, drawn: Drawn, update: Update, probes: Sequence[GroupReport]) -> None:
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
        measured = self._clock.metrics(sum(rollout.token_count for rollout in drawn.rollouts))
        measured |= costs | self._step.prompts.metrics()
        measured |= {"num_tokens": float(state.num_tokens), "num_samples": float(state.samples)}
        measured["peak_memory"] = sum(peaks) if self._policy.device.type == "cpu" else max(peaks)
        if 1 < ranks.count <= MOST_BY_RANK:
            measured |= by_rank(seconds=seconds, tokens=tokens)
        finished = FinishedStep(
            step, drawn.scored, drawn.filtered, drawn.batch.tokens, drawn.credit, update, measured, probes
        )
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
            self._step.sampler, items, self._config, lambda done: self._attempt.show("evaluation", done, total)
        )
        right = metrics.get("eval/pass@1")
        return metrics, "" if right is None else f"pass@1 {right:.3f} on {len(items)} held-out prompts"
