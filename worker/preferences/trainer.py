"""The loop over preference pairs: draw some, judge them, push the chosen above the rejected, report. Then again."""

import time
from collections.abc import Callable

from backend.contract.preference import DpoConfig, RewardModelConfig
from worker.attempt import Attempt
from worker.errors import RunFailure
from worker.policy.device import peak_memory
from worker.preferences.learner import PairLearner
from worker.preferences.objective import Objective
from worker.preferences.pairs import Pairs
from worker.reporter import Channels, Ending, Place
from worker.tasks.items import draw

LOGGED_CHARACTERS = 200

Examination = Callable[[Callable[[int, int], None]], dict[str, float]]
"""Further metrics of an evaluation; its argument gets what is done, and the total."""


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
        self._examination = examination
        self._learner = PairLearner(objective, config.optimizer, steps=config.budget.steps, make_room=make_room)
        self._attempt = Attempt(place, channels, objective.trained, self._learner.optimizer, config.budget)

    def run(self) -> Ending:
        """Train to the end, to the step boundary after a request, or to where a shutdown finds the weights untouched."""
        with self._attempt.opened():
            self._announce()
            self._check_lengths()
            for step in self._attempt.steps(self._evaluate):
                self._train(step)
        return self._attempt.ending

    def _train(self, step: int) -> None:
        """One step: some pairs, one update, one report."""
        began, budget, attempt = time.monotonic(), self._config.budget, self._attempt
        pairs = draw(self._pairs.train, cursor=attempt.state.cursor, count=budget.pairs_per_step, seed=budget.seed)
        update = self._learner.update(step, pairs, lambda done, total: attempt.show("update", done, total))
        attempt.warn(step, self._objective.remarks, update.fault)
        attempt.advance(drawn=len(pairs), tokens=update.tokens, samples=2 * len(pairs))
        metrics = {
            "num_tokens": float(attempt.state.num_tokens),
            "step_time": time.monotonic() - began,
            "peak_memory": peak_memory(self._objective.trained.device),
        }
        attempt.reporter.metrics(step, update.metrics | metrics)

    def _announce(self) -> None:
        left_out = f"; {self._pairs.undecided:,} without a difference left out" if self._pairs.undecided else ""
        self._attempt.start(
            f"{len(self._pairs.train):,} pairs to train on, {len(self._pairs.held_out):,} of other prompts held out{left_out}"
        )
        first = self._pairs.train[0]
        chosen, rejected = (_shortened(response.text) for response in (first.chosen, first.rejected))
        self._attempt.reporter.log(
            "info",
            f"for example, to “{_shortened(first.question)}” the chosen is “{chosen}”, the rejected “{rejected}”",
        )

    def _check_lengths(self) -> None:
        """Raises RunFailure if a pair is longer than the model's context."""
        context = self._objective.context
        for pair in (*self._pairs.train, *self._pairs.held_out):
            longest = max(self._objective.lengths(pair))
            if context is not None and longest > context:
                raise RunFailure(
                    "pair_too_long",
                    f"A prompt with its completion has {longest:,} tokens, and the model was made for {context:,}: "
                    f"“{_shortened(pair.question)}”. Leave such rows out, or choose another model.",
                )

    def _evaluate(self) -> tuple[dict[str, float], str]:
        def show(done: int, total: int) -> None:
            self._attempt.show("evaluation", done, total)

        metrics = self._learner.examine(self._pairs.held_out, show) | self._examination(show)
        right = f", pass@1 {metrics['eval/pass@1']:.3f}" if "eval/pass@1" in metrics else ""
        pairs = f"{metrics['eval/accuracy']:.3f} of {len(self._pairs.held_out):,} held-out pairs ranked rightly"
        return metrics, f"{pairs}{right}"


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LOGGED_CHARACTERS else f"{line[: LOGGED_CHARACTERS - 1]}…"
