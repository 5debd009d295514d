"""One update on some pairs, in micro-batches whose split cannot change the result, and the same look without an update."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from backend.contract.training import Optimizer
from worker.policy.device import abilities
from worker.policy.policy import Policy, bytes_to_come, recomputing
from worker.preferences.objective import Objective, Verdict
from worker.preferences.pairs import Pair
from worker.schedule import learning_rate
from worker.skipped_updates import SkippedUpdates, clipped
from worker.spare_memory import SpareMemory

OnProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class PairUpdate:
    """What an update did: metrics under their field names, and the tokens that went through the model."""

    metrics: dict[str, float]
    tokens: int
    fault: str  # what was not finite, in words: the weights are as they were; "" if the update was applied


@dataclass
class _Sums:
    """Sums over pairs, by metric."""

    totals: dict[str, float] = field(default_factory=dict)

    def add(self, verdict: Verdict, accuracy: str, margin: str) -> None:
        right_N = (verdict.margin_N.sign() + 1) / 2  # a tie is a coin's toss: half right
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
        self._objective, self._settings, self._steps = objective, settings, steps
        self._parameters = list(objective.trained.named_parameters())
        self.optimizer = torch.optim.AdamW(
            [parameter for _, parameter in self._parameters],
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            fused=abilities(objective.trained.device).fused_optimizer,
        )
        if isinstance(objective.trained, Policy):
            objective.trained.bytes_to_come = partial(bytes_to_come, self.optimizer)
        self._spare = SpareMemory(objective.trained.device, self.optimizer, objective.remarks, make_room)
        self._skipped = SkippedUpdates()

    def update(
        self, step: int, pairs: Sequence[Pair], on_progress: OnProgress = lambda done, total: None
    ) -> PairUpdate:
        """Train on the pairs. `on_progress` gets the pairs done and their total.

        Raises RunFailure `diverged` when the gradient was not finite three steps in a row.
        """
        metrics, tokens = self._spare.once_more(lambda: self._pass_through(pairs, on_progress))
        norm, fault = clipped(self._parameters, self._settings.max_grad_norm, metrics["loss"])
        rate = learning_rate(self._settings, step, steps=self._steps)
        if norm > 0:  # as in GRPO: momentum and decay do not act alone
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            self._spare.take_for_moments()
            self.optimizer.step()
            if isinstance(self._objective.trained, Policy):
                self._objective.trained.updates += 1
        self._skipped.count(step, fault=fault, loss=metrics["loss"], learning_rate=self._settings.learning_rate)
        return PairUpdate(metrics | {"grad_norm": norm, "learning_rate": rate}, tokens, fault)

    def _pass_through(self, pairs: Sequence[Pair], on_progress: OnProgress) -> tuple[dict[str, float], int]:
        """Forward and backward over all the pairs: their metrics, and the tokens that went through the model."""
        sums, tokens, done = _Sums(), 0, 0
        self.optimizer.zero_grad(set_to_none=True)
        with recomputing(self._objective.module):
            for part, size in self._parts(pairs):
                verdict = self._objective.judge(part)
                sums.add(verdict, *self._objective.metrics)
                share: Tensor = verdict.loss_N.sum() / len(pairs)
                share.backward()  # type: ignore[no-untyped-call]
                tokens, done = tokens + size, done + len(part)
                on_progress(done, len(pairs))
        return sums.means(len(pairs)), tokens

    def examine(self, pairs: Sequence[Pair], on_progress: OnProgress = lambda done, total: None) -> dict[str, float]:
        """Loss, accuracy and margin over pairs that are not trained on, under `eval/`."""
        return self._spare.once_more(lambda: self._examine(pairs, on_progress))

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
