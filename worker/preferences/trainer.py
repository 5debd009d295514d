"""The loop over preference pairs: draw some, judge them, push the chosen above the rejected, report. Then again."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from backend.contract.base import finite
from backend.contract.pairs import RECORDED, PairReport
from backend.contract.preference import DpoConfig, RewardModelConfig
from backend.contract.training import Optimizer
from worker.attempt import Attempt
from worker.checkpoint import load_tensors
from worker.optimization import Optimization
from worker.policy.device import peak_memory
from worker.policy.recomputing import recomputing
from worker.preferences.fitting import fit
from worker.preferences.objective import DirectPreference, Objective, Verdict
from worker.preferences.pairs import Pair, Pairs
from worker.reporter import Channels, Ending, Place, StepContent
from worker.rollout.engine import quiet
from worker.tasks.items import draw

LOGGED_CHARACTERS = 200
REFERENCE_FILE = "reference_logprobs"  # of a checkpoint; those of earlier versions have none

Examination = Callable[[Callable[[int, int], None]], dict[str, float]]
"""Further metrics of an evaluation; its argument gets what is done, and the total."""


OnProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class PairUpdate:
    """What an update did: metrics under their field names, and the tokens that went through the model."""

    metrics: dict[str, float]
    margins: list[float]  # before the update, of each pair
    tokens: int
    fault: str  # what was not finite, in words: the weights are as they were; "" if the update was applied


@dataclass
class _Sums:
    """Sums over pairs, by metric."""

    totals: dict[str, float] = field(default_factory=dict)

    def add(self, verdict: Verdict, accuracy: str, margin: str) -> None:
        right_N = (verdict.margin_N.sign() + 1) / 2  # a tie counts as half right
        values = {"loss": verdict.loss_N, accuracy: right_N, margin: verdict.margin_N, **verdict.measured}
        for name, value_N in values.items():
            # On the CPU: Apple's GPUs have no float64.
            total = float(value_N.detach().cpu().double().sum())
            self.totals[name] = self.totals.get(name, 0.0) + total

    def means(self, pairs: int) -> dict[str, float]:
        return {name: total / pairs for name, total in self.totals.items()}


class PairLearner:
    """Holds the optimizer. One call of `update` is one step of the run."""

    def __init__(
        self, objective: Objective, settings: Optimizer, *, steps: int, make_room: Callable[[], bool] = lambda: False
    ) -> None:
        """`make_room` gives memory of the device back that something else holds, and says whether there was any."""
        self._objective, self._settings = objective, settings
        self._optimization = Optimization(
            objective.trained, settings, steps=steps, remarks=objective.remarks, make_room=make_room
        )
        self.optimizer = self._optimization.adamw

    def update(self, step: int, pairs: Sequence[Pair], on_progress: OnProgress = quiet) -> PairUpdate:
        """Train on the pairs. `on_progress` gets the pairs done and their total.

        Raises RunFailure `diverged` when the gradient was not finite three steps in a row.
        """
        metrics, margins, tokens = self._optimization.once_more(lambda: self._pass_through(pairs, on_progress))
        applied, fault = self._optimization.step(step, metrics["loss"])
        self._optimization.count(step, fault=fault, loss=metrics["loss"])
        return PairUpdate(metrics | applied, margins, tokens, fault)

    def _pass_through(
        self, pairs: Sequence[Pair], on_progress: OnProgress
    ) -> tuple[dict[str, float], list[float], int]:
        """Forward and backward over all the pairs: their metrics, their margins, and the tokens that went through the model."""
        sums, tokens, done = _Sums(), 0, 0
        margins: list[float] = []
        self.optimizer.zero_grad(set_to_none=True)
        with recomputing(self._objective.module):
            for part, size in self._parts(pairs):
                verdict = self._objective.judge(part)
                sums.add(verdict, *self._objective.metrics)
                share: Tensor = verdict.loss_N.sum() / len(pairs)
                share.backward()  # type: ignore[no-untyped-call]
                margins += verdict.margin_N.detach().tolist()
                tokens, done = tokens + size, done + len(part)
                on_progress(done, len(pairs))
        return sums.means(len(pairs)), margins, tokens

    def examine(self, pairs: Sequence[Pair], on_progress: OnProgress = quiet) -> dict[str, float]:
        """Loss, accuracy and margin over pairs that are not trained on, under `eval/`."""
        return self._optimization.once_more(lambda: self._examine(pairs, on_progress))

    @torch.no_grad()
    def _examine(self, pairs: Sequence[Pair], on_progress: OnProgress) -> dict[str, float]:
        sums, done = _Sums(), 0
        for part, _ in self._parts(pairs):
            sums.add(self._objective.judge(part), "accuracy", "margin")
            done += len(part)
            on_progress(done, len(pairs))
        means = sums.means(len(pairs))
        return {f"eval/{name}": means[name] for name in ("loss", "accuracy", "margin")}

    def _parts(self, pairs: Sequence[Pair]) -> Iterator[tuple[list[Pair], int]]:
        """The pairs, in their order, in parts within the token budget with padding, and each part's tokens; one always fits."""
        part: list[Pair] = []
        longest = size = 0
        for pair in pairs:
            lengths = self._objective.lengths(pair)
            if part and 2 * (len(part) + 1) * max(longest, *lengths) > self._settings.micro_batch_tokens:
                yield part, size
                part, longest, size = [], 0, 0
            part.append(pair)
            longest, size = max(longest, *lengths), size + sum(lengths)
        if part:
            yield part, size


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
        self._looking = channels.fetching(config.budget.steps)
        self._examination = examination
        self._learner = PairLearner(objective, config.optimizer, steps=config.budget.steps, make_room=make_room)
        self._attempt = Attempt(
            place,
            channels,
            objective.trained,
            self._learner.optimizer,
            config.budget,
            lambda: {REFERENCE_FILE: objective.state()} if isinstance(objective, DirectPreference) else {},
        )
        kept = None if place.resume is None else place.resume / f"{REFERENCE_FILE}.safetensors"
        if isinstance(objective, DirectPreference) and kept is not None and kept.exists():
            objective.restore(load_tensors(kept.parent, REFERENCE_FILE))

    def run(self) -> Ending:
        """Train to the end, to the step boundary after a request, or to where a shutdown finds the weights untouched."""
        with self._attempt.opened():
            self._pairs, remarks = fit(
                self._pairs, self._config.pairs, self._objective, partial(self._looking, "prompts")
            )
            self._announce()
            for remark in remarks:
                self._attempt.reporter.log("warning", remark)
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
        recorded = list(zip(pairs[:RECORDED], update.margins, strict=False))
        attempt.reporter.step(
            step,
            lambda: StepContent(
                update.metrics | metrics,
                pairs=[_reported(index, pair, margin) for index, (pair, margin) in enumerate(recorded)],
            ),
        )

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

    def _evaluate(self) -> tuple[dict[str, float], str]:
        def show(done: int, total: int) -> None:
            self._attempt.show("evaluation", done, total)

        metrics = self._learner.examine(self._pairs.held_out, show) | self._examination(show)
        right = f", pass@1 {metrics['eval/pass@1']:.3f}" if "eval/pass@1" in metrics else ""
        pairs = f"{metrics['eval/accuracy']:.3f} of {len(self._pairs.held_out):,} held-out pairs ranked rightly"
        return metrics, f"{pairs}{right}"


def _reported(index: int, pair: Pair, margin: float) -> PairReport:
    return PairReport(
        index=index,
        prompt_id=pair.prompt_id,
        prompt=pair.question,
        chosen=pair.chosen.text,
        rejected=pair.rejected.text,
        margin=finite(margin),
    )


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LOGGED_CHARACTERS else f"{line[: LOGGED_CHARACTERS - 1]}…"
