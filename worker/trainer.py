"""The GRPO loop: draw prompts, sample a group for each, score, compare within the group, update, report. Then again."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from backend.contract.grpo import GrpoConfig
from backend.contract.protocol import CheckpointReport, Finish, LogLine, Report, Start
from backend.contract.records import Progress, Requested
from worker.algorithms.advantages import GroupStatistics, group_center, group_statistics, group_zscore
from worker.checkpoint import (
    TrainingState,
    load_optimizer,
    load_state,
    save_checkpoint,
)
from worker.errors import Interrupted
from worker.evaluation import evaluate
from worker.group_records import finite, group_reports
from worker.learner import Learner, Update
from worker.phase_clock import PhaseClock
from worker.policy.policy import Policy
from worker.rewards.scoring import RewardScorer, Sample, Scores
from worker.rollout.draws import Draws
from worker.rollout.rollout import Rollout
from worker.rollout.sampler import sample
from worker.step_metrics import step_metrics
from worker.tasks.items import Items, draw, held_out
from worker.traces import trace_file, traced_rows

log = logging.getLogger(__name__)

Ending = Literal["finished", "stopped", "paused", "released"]


@dataclass(frozen=True)
class Channels:
    """How a trainer tells what it does and learns what is asked of it. Any of these may raise to end the run."""

    send: Callable[[str, Start | Report | CheckpointReport | Finish], None]
    show: Callable[[Progress], None]  # also checks that the run is still ours
    requested: Callable[[], Requested]
    between_steps: Callable[[], None]  # a busy worker serves samples here
    shutting_down: Callable[[], bool]


@dataclass(frozen=True)
class Place:
    """Where the attempt stands in the world."""

    run_id: int
    attempt: int
    store: Path
    store_name: str
    resume: Path | None  # a whole checkpoint of this run
    device_name: str
    versions: dict[str, str]

    def checkpoint(self, step: int) -> Path:
        """Where checkpoint `step` of this attempt lies."""
        return self.store / f"run-{self.run_id}" / f"step-{step}-attempt-{self.attempt}"


class Trainer:
    """Trains one policy for one attempt of one run."""

    def __init__(
        self, config: GrpoConfig, policy: Policy, items: Items, scorer: RewardScorer, place: Place, channels: Channels
    ) -> None:
        self._config, self._policy, self._items, self._scorer = config, policy, items, scorer
        self._place, self._channels = place, channels
        self._learner = Learner(policy, config)
        self._state = TrainingState(step=0, cursor=0, num_tokens=0, samples=0, elapsed_seconds=0.0)
        if place.resume is not None:
            self._state = load_state(place.resume)
            load_optimizer(place.resume, policy, self._learner.optimizer)
        self._saved_step = self._state.step  # of the newest checkpoint; at step 0 the model itself is one
        self._started = time.monotonic()
        self._seq = 0
        self._clock = PhaseClock()
        self._last_report_seconds = 0.0

    def run(self) -> Ending:
        """Train to the end, to the step boundary after a request, or to where a shutdown finds the weights untouched."""
        try:
            return self._run()
        except Interrupted:  # the step is drawn again, exactly so, by whoever goes on
            self._save_if_new()
            return "released"

    def _run(self) -> Ending:
        self._announce()
        for step in range(self._state.step, self._config.budget.steps):
            ending = self._asked_to_end()
            if ending is not None:
                self._save_if_new()
                return ending
            self._evaluate_if_due(step)
            self._clock = PhaseClock()
            rollout = self._sample(step)
            scores = self._score(rollout)
            rewards_P_G, statistics, advantages_P_G = self._advantages(scores)
            trained_R = self._trained(rollout, rewards_P_G)
            update = self._update(step, rollout, advantages_P_G, trained_R)
            self._advance(rollout)
            self._report(step, rollout, scores, rewards_P_G, statistics, advantages_P_G, update)
            self._save_if_due()
            self._channels.between_steps()
        self._evaluate_if_due(self._config.budget.steps)
        self._save_if_new()
        return "finished"

    # ---- the phases of a step

    def _sample(self, step: int) -> Rollout:
        sampling, seed = self._config.sampling, self._config.budget.seed
        items = draw(self._items.train, cursor=self._state.cursor, count=sampling.prompts_per_step, seed=seed)
        prompts = [self._policy.encode(item) for item in items]
        with self._clock.phase("rollout"):
            completions = sample(
                self._policy,
                [ids for _, ids in prompts],
                group_size=sampling.group_size,
                decoding=sampling,
                draws=Draws(seed, "train", step),
                logprob_temperature=self._learner.logprob_temperature,
                on_progress=lambda done: self._show("rollout", done, sampling.completions_per_step),
            )
        return Rollout(
            items, [text for text, _ in prompts], [ids for _, ids in prompts], sampling.group_size, completions
        )

    def _score(self, rollout: Rollout) -> Scores:
        with self._clock.phase("reward"):
            return self._scorer.score(
                samples_of(rollout), on_progress=lambda done: self._show("reward", done, rollout.rows)
            )

    def _advantages(self, scores: Scores) -> tuple[Tensor, GroupStatistics, Tensor]:
        chosen = self._config.algorithm.advantage
        # In float64, so that what a person recomputes from the rewards on the screen is what trained the policy.
        rewards_P_G = torch.from_numpy(scores.total).reshape(-1, self._config.sampling.group_size)
        if chosen.kind == "group_center":
            return rewards_P_G, group_statistics(rewards_P_G), group_center(rewards_P_G)
        statistics = group_statistics(rewards_P_G, std=chosen.std)
        return rewards_P_G, statistics, group_zscore(rewards_P_G, std=chosen.std, eps=chosen.eps)

    def _trained(self, rollout: Rollout, rewards_P_G: Tensor) -> Tensor:
        """Which completions enter the loss: unscored ones never do, truncated ones as configured. Shape (R,)."""
        trained_R = ~rewards_P_G.flatten().isnan()
        if self._config.algorithm.truncated_completions == "mask":
            trained_R &= torch.tensor([completion.finish_reason == "stop" for completion in rollout.completions_R])
        return trained_R

    def _update(self, step: int, rollout: Rollout, advantages_P_G: Tensor, trained_R: Tensor) -> Update:
        with self._clock.phase("update"):
            update = self._learner.update(
                step, rollout, advantages_P_G.flatten().float(), trained_R, on_progress=self._show
            )
        self._clock.move("update", "reference", update.reference_seconds)
        if not update.applied:
            self._log("warning", f"step {step}: the gradient was not finite, so the update was not applied")
        return update

    def _advance(self, rollout: Rollout) -> None:
        self._state = replace(
            self._state,
            step=self._state.step + 1,
            cursor=self._state.cursor + len(rollout.items_P),
            num_tokens=self._state.num_tokens + rollout.token_count + sum(map(len, rollout.prompt_ids_P)),
            samples=self._state.samples + rollout.rows,
        )

    # ---- what is told

    def _announce(self) -> None:
        place, step = self._place, self._state.step
        self._channels.send(
            "start",
            Start(attempt=place.attempt, from_step=step, device=place.device_name, versions=place.versions),
        )
        trained = sum(parameter.numel() for parameter in self._policy.parameters())
        where = (
            f"resumed from checkpoint {step}" if place.resume is not None else "started from the model's own weights"
        )
        self._log(
            "info",
            f"{where} on {place.device_name}: {trained:,} trained parameters, {len(self._items.train):,} items to train on, "
            f"{len(self._items.held_out):,} held out",
        )

    def _report(
        self,
        step: int,
        rollout: Rollout,
        scores: Scores,
        rewards_P_G: Tensor,
        statistics: GroupStatistics,
        advantages_P_G: Tensor,
        update: Update,
    ) -> None:
        began = time.monotonic()
        self._clock.add("report", self._last_report_seconds)
        rows = traced_rows(self._config.telemetry, step, rewards_P_G)
        metrics = step_metrics(rollout, scores, rewards_P_G, update)
        metrics |= self._clock.metrics(rollout.token_count) | {"num_tokens": float(self._state.num_tokens)}
        self._send_report(
            step=step,
            metrics={name: finite(value) for name, value in metrics.items()},
            groups=group_reports(rollout, scores, rewards_P_G, statistics, advantages_P_G, update.tokens),
            trace=trace_file(rows, self._policy, rollout, update.tokens),
        )
        self._last_report_seconds = time.monotonic() - began  # told with the next step: this one is on its way

    def _evaluate_if_due(self, step: int) -> None:
        budget = self._config.budget
        if not budget.eval_every or (step % budget.eval_every and step != budget.steps):
            return
        items = held_out(self._items, budget.eval_items)
        total = len(items) * (budget.eval_samples + 1)
        metrics = evaluate(
            self._policy, items, self._scorer, self._config, lambda done: self._show("evaluation", done, total)
        )
        self._send_report(step=step, metrics={name: finite(value) for name, value in metrics.items()})
        if "eval/pass@1" in metrics:
            self._log("info", f"after {step} steps: pass@1 {metrics['eval/pass@1']:.3f} on {len(items)} held-out items")

    def _log(self, level: Literal["info", "warning", "error"], message: str) -> None:
        getattr(log, level)("run %s: %s", self._place.run_id, message)
        self._send_report(logs=[LogLine(level=level, message=message)])

    def _send_report(self, **content: object) -> None:
        report = {
            "attempt": self._place.attempt,
            "seq": self._seq,
            "seconds": self._state.elapsed_seconds + time.monotonic() - self._started,
            **content,
        }
        self._seq += 1
        self._channels.send("report", Report.model_validate(report))

    def _show(self, phase: str, done: int, total: int) -> None:
        if phase not in ("update", "checkpoint") and self._channels.shutting_down():
            raise Interrupted
        self._channels.show(
            Progress(step=self._state.step, total_steps=self._config.budget.steps, phase=phase, done=done, total=total)
        )

    # ---- boundaries

    def _asked_to_end(self) -> Ending | None:
        requested = self._channels.requested()
        if requested == "pause":
            return "paused"
        if requested == "stop":
            return "stopped"
        return "released" if self._channels.shutting_down() else None

    def _save_if_due(self) -> None:
        every = self._config.budget.checkpoint_every
        if every and self._state.step % every == 0 and self._state.step < self._config.budget.steps:
            self._save_if_new()

    def _save_if_new(self) -> None:
        """Save the state, unless no step was done since the newest checkpoint."""
        if self._state.step == self._saved_step:
            return
        folder = self._place.checkpoint(self._state.step)
        self._show("checkpoint", 0, 1)
        state = replace(self._state, elapsed_seconds=self._state.elapsed_seconds + time.monotonic() - self._started)
        saved = save_checkpoint(folder, self._policy, self._learner.optimizer, state)
        self._saved_step = self._state.step
        self._channels.send(
            "checkpoint",
            CheckpointReport(
                attempt=self._place.attempt,
                step=self._state.step,
                store=self._place.store_name,
                path=str(folder.relative_to(self._place.store)),
                sha256=saved.sha256,
                size_bytes=saved.size_bytes,
            ),
        )


def samples_of(rollout: Rollout) -> list[Sample]:
    """What the scorer gets of a rollout."""
    return [
        Sample(
            rollout.prompt_texts_P[row // rollout.group_size],
            completion.text,
            len(completion.ids),
            rollout.items_P[row // rollout.group_size],
        )
        for row, completion in enumerate(rollout.completions_R)
    ]
