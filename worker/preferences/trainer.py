"""The loop over preference pairs: draw some, judge them, push the chosen above the rejected, report. Then again."""

import time
from collections.abc import Callable
from dataclasses import replace

from backend.contract.preference import DpoConfig, RewardModelConfig
from worker.checkpoint import TrainingState, load_optimizer, load_state
from worker.errors import Interrupted, RunFailure
from worker.policy.device import peak_memory
from worker.preferences.learner import PairLearner
from worker.preferences.objective import Objective
from worker.preferences.pairs import Pairs
from worker.reporter import Channels, Ending, Place, Reporter
from worker.saver import Saver
from worker.tasks.items import draw

LOGGED_CHARACTERS = 200

Examination = Callable[[Callable[[int, int], None]], dict[str, float]]
"""Further metrics of an evaluation; it is given where to tell what is done, of how much."""


class PairTrainer:
    """Trains one model on pairs for one attempt of one run."""

    def __init__(
        self,
        config: RewardModelConfig | DpoConfig,
        objective: Objective,
        pairs: Pairs,
        place: Place,
        channels: Channels,
        examination: Examination = lambda on_progress: {},
        make_room: Callable[[], bool] = lambda: False,
    ) -> None:
        """`make_room` gives memory back that an examination holds, and says whether there was any."""
        self._config, self._objective, self._pairs = config, objective, pairs
        self._channels, self._examination = channels, examination
        self._learner = PairLearner(objective, config.optimizer, steps=config.budget.steps, make_room=make_room)
        self._state = TrainingState(step=0, cursor=0, num_tokens=0, samples=0, elapsed_seconds=0.0)
        if place.resume is not None:
            self._state = load_state(place.resume)
            load_optimizer(place.resume, objective.trained, self._learner.optimizer)
        budget = config.budget
        self._reporter = Reporter(place, channels, total_steps=budget.steps, elapsed=self._state.elapsed_seconds)
        self._saver = Saver(
            place,
            self._reporter,
            objective.trained,
            self._learner.optimizer,
            budget=budget,
            saved_step=self._state.step,
        )

    def run(self) -> Ending:
        """Train to the end, to the step boundary after a request, or to where a shutdown finds the weights untouched."""
        with self._saver, self._reporter:
            try:
                return self._run()
            except Interrupted as interrupted:
                self._saver.save_if_new(self._state)
                return interrupted.ending

    def _run(self) -> Ending:
        self._announce()
        self._saver.warn_if_short()
        self._check_lengths()
        for step in range(self._state.step, self._config.budget.steps):
            ending = self._reporter.asked_to_end()
            if ending is not None:
                self._saver.save_if_new(self._state)
                return ending
            self._evaluate_if_due(step)
            self._train(step)
            self._saver.save_if_due(self._state)
            self._channels.between_steps()
        self._evaluate_if_due(self._config.budget.steps)
        self._saver.save_if_new(self._state)
        return "finished"

    def _train(self, step: int) -> None:
        """One step: some pairs, one update, one report."""
        began, budget = time.monotonic(), self._config.budget
        pairs = draw(self._pairs.train, cursor=self._state.cursor, count=budget.pairs_per_step, seed=budget.seed)
        update = self._learner.update(step, pairs, lambda done, total: self._show("update", done, total))
        while self._objective.remarks:
            self._reporter.log("warning", self._objective.remarks.pop(0))
        if update.fault:
            self._reporter.log("warning", f"step {step}: {update.fault} was not finite, so the update was not applied")
        self._state = replace(
            self._state,
            step=step + 1,
            cursor=self._state.cursor + len(pairs),
            num_tokens=self._state.num_tokens + update.tokens,
            samples=self._state.samples + 2 * len(pairs),
        )
        metrics = {
            "num_tokens": float(self._state.num_tokens),
            "step_time": time.monotonic() - began,
            "peak_memory": peak_memory(self._objective.trained.device),
        }
        self._reporter.metrics(step, update.metrics | metrics)

    def _announce(self) -> None:
        trained = sum(parameter.numel() for _, parameter in self._objective.trained.named_parameters())
        left_out = f"; {self._pairs.undecided:,} without a difference left out" if self._pairs.undecided else ""
        self._reporter.start(
            self._state.step,
            f"{trained:,} trained parameters, {len(self._pairs.train):,} pairs to train on, "
            f"{len(self._pairs.held_out):,} of other prompts held out{left_out}",
        )
        first = self._pairs.train[0]
        chosen, rejected = (_shortened(response.text) for response in (first.chosen, first.rejected))
        self._reporter.log(
            "info",
            f"for example, to “{_shortened(first.question)}” the chosen is “{chosen}”, the rejected “{rejected}”",
        )

    def _check_lengths(self) -> None:
        """Raises RunFailure where a pair is longer than what the model was made for."""
        context = self._objective.context
        for pair in (*self._pairs.train, *self._pairs.held_out):
            longest = max(self._objective.lengths(pair))
            if context is not None and longest > context:
                raise RunFailure(
                    "pair_too_long",
                    f"A prompt with its completion has {longest:,} tokens, and the model was made for {context:,}: "
                    f"“{_shortened(pair.question)}”. Leave such rows out, or choose another model.",
                )

    def _evaluate_if_due(self, step: int) -> None:
        budget = self._config.budget
        if not budget.eval_every or (step % budget.eval_every and step != budget.steps):
            return
        metrics = self._learner.examine(self._pairs.held_out, lambda done, total: self._show("evaluation", done, total))
        metrics |= self._examination(lambda done, total: self._show("evaluation", done, total))
        self._reporter.metrics(step, metrics)
        right = f", pass@1 {metrics['eval/pass@1']:.3f}" if "eval/pass@1" in metrics else ""
        pairs = f"{metrics['eval/accuracy']:.3f} of {len(self._pairs.held_out):,} held-out pairs ranked rightly"
        self._reporter.log("info", f"after {step} steps: {pairs}{right}")

    def _show(self, phase: str, done: int, total: int) -> None:
        self._reporter.show(self._state.step, phase, done, total)


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LOGGED_CHARACTERS else f"{line[: LOGGED_CHARACTERS - 1]}…"
