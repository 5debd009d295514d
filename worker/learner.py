"""The update: from a rollout and its advantages to new weights, in micro-batches whose split cannot change the result."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from backend.contract.grpo import GrpoConfig
from worker.algorithms import kl, ratios, surrogates
from worker.algorithms.aggregation import token_weights
from worker.errors import RunFailure
from worker.micro_batches import MicroBatch, TokenRecord, fill, micro_batch_rows, with_progress
from worker.policy.logprobs import TokenBatch
from worker.policy.policy import Policy, recomputing
from worker.rollout.rollout import Rollout

_MAX_SKIPPED_IN_A_ROW = 3


@dataclass(frozen=True)
class Update:
    """What an update did: metrics under their field names, and the values of every token."""

    metrics: dict[str, float]
    tokens: TokenRecord
    applied: bool  # False where a gradient was not finite: the weights are as they were
    reference_seconds: float  # the part of the time that the reference's log-probabilities took


@dataclass
class _Sums:
    """Running sums over the tokens of one pass; means divide by the tokens in the end."""

    totals: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, values: Tensor) -> None:
        # On the CPU: Apple's GPUs have no float64.
        self.totals[name] = self.totals.get(name, 0.0) + float(values.detach().cpu().double().sum())


class Learner:
    """Holds the optimizer. One call of `update` is one step of the run."""

    def __init__(self, policy: Policy, config: GrpoConfig) -> None:
        self._policy = policy
        self._config = config
        self._algorithm = config.algorithm
        self._temperature = config.sampling.temperature if config.algorithm.logprobs == "tempered" else 1.0
        self.optimizer = torch.optim.AdamW(
            policy.parameters(),
            lr=config.optimizer.learning_rate,
            weight_decay=config.optimizer.weight_decay,
            fused=policy.device.type in ("cpu", "cuda"),
        )
        self._skipped = 0

    @property
    def logprob_temperature(self) -> float:
        """The temperature that log-probabilities are taken at."""
        return self._temperature

    @property
    def compares_with_initial(self) -> bool:
        """Whether the loss needs the log-probabilities of the weights at step 0."""
        return self._algorithm.kl.beta > 0 and self._algorithm.kl.reference == "initial"

    def update(
        self,
        step: int,
        rollout: Rollout,
        advantages_R: Tensor,
        trained_R: Tensor,
        on_progress: Callable[[str, int, int], None] = lambda phase, done, total: None,
    ) -> Update:
        """Train on a rollout. `advantages_R` is float; `trained_R` is False for completions left out of the loss.

        `on_progress` gets the phase, the rows done and their total, and may raise to end the update before it is applied.
        Raises RunFailure `diverged` when the gradient was not finite three steps in a row.
        """
        micro_batches, mask_R_T = self._split(rollout, advantages_R, trained_R)
        after = self._config.telemetry.logprob_after_update
        record = TokenRecord.empty(mask_R_T, reference=self._algorithm.kl.beta > 0, after=after)
        began = time.monotonic()
        if self.compares_with_initial:
            for micro, done in with_progress(micro_batches):
                micro.reference_R_T = self._policy.reference_logprobs(
                    micro.batch, temperature=self._temperature
                ).logprob_R_T
                on_progress("reference", done, rollout.rows)
        reference_seconds = time.monotonic() - began
        passes = []
        for index in range(self._algorithm.updates_per_batch):
            last = index == self._algorithm.updates_per_batch - 1
            passes.append(self._one_pass(step, micro_batches, record if last else None, rollout.rows, on_progress))
        if after:
            self._measure_after(micro_batches, record)
        metrics = {name: sum(one[name] for one in passes) / len(passes) for name in passes[0]}
        applied = all(math.isfinite(one["grad_norm"]) for one in passes)
        self._count_skipped(step, applied, metrics)
        return Update(metrics, record, applied, reference_seconds)

    def _one_pass(
        self,
        step: int,
        micro_batches: Sequence[MicroBatch],
        record: TokenRecord | None,
        rows: int,
        on_progress: Callable[[str, int, int], None],
    ) -> dict[str, float]:
        """Forward, backward and one optimizer step over the whole rollout; returns the metrics of this pass."""
        sums = _Sums()
        self.optimizer.zero_grad(set_to_none=True)
        with recomputing(self._policy.model):
            for micro, done in with_progress(micro_batches):
                self._loss(micro, sums, record).backward()  # type: ignore[no-untyped-call]
                on_progress("update", done, rows)
        grad_norm = float(
            torch.nn.utils.clip_grad_norm_(self._policy.parameters(), self._config.optimizer.max_grad_norm)
        )
        learning_rate = self.learning_rate(step)
        if math.isfinite(grad_norm) and math.isfinite(sums.totals["loss"]):
            for group in self.optimizer.param_groups:
                group["lr"] = learning_rate
            self.optimizer.step()
        else:
            grad_norm = math.nan
        tokens = max(1, sum(int(micro.mask_R_T.sum()) for micro in micro_batches))
        means = {name: total / tokens for name, total in sums.totals.items() if name != "loss"}
        return {"loss": sums.totals["loss"], "grad_norm": grad_norm, "learning_rate": learning_rate, **means}

    def _loss(self, micro: MicroBatch, sums: _Sums, record: TokenRecord | None) -> Tensor:
        """This micro-batch's share of the step's loss: the sum of weight × token loss."""
        algorithm = self._algorithm
        values = self._policy.logprobs(
            micro.batch, temperature=self._temperature, entropy_gradient=algorithm.entropy_bonus > 0
        )
        logprob_R_T = values.logprob_R_T
        if micro.old_logprob_R_T is None:  # the first pass: the old policy is this one, and the ratio exactly 1
            micro.old_logprob_R_T = logprob_R_T.detach()
        ratio_R_T = ratios.importance_ratio(
            logprob_R_T, micro.old_logprob_R_T, micro.mask_R_T.to(logprob_R_T.dtype), level=algorithm.ratio
        )
        token_loss_R_T, low_R_T, high_R_T = self._surrogate(logprob_R_T, ratio_R_T, micro)
        kl_R_T = None
        if algorithm.kl.beta > 0:
            reference_R_T = micro.reference_R_T if micro.reference_R_T is not None else micro.old_logprob_R_T
            kl_R_T = kl.kl_per_token(logprob_R_T, reference_R_T, estimator=algorithm.kl.estimator)
            token_loss_R_T = token_loss_R_T + algorithm.kl.beta * kl_R_T
            sums.add("kl", kl_R_T[micro.mask_R_T])
        if algorithm.entropy_bonus > 0:
            token_loss_R_T = token_loss_R_T - algorithm.entropy_bonus * values.entropy_R_T
        loss: Tensor = (micro.weights_R_T * token_loss_R_T).sum()
        sums.add("loss", loss)
        for name, tensor in (
            ("entropy", values.entropy_R_T),
            ("ratio_mean", ratio_R_T),
            ("clip_ratio/low_mean", low_R_T),
            ("clip_ratio/high_mean", high_R_T),
        ):
            sums.add(name, tensor[micro.mask_R_T])
        if record is not None:
            fill(record, micro, values, ratio_R_T, low_R_T | high_R_T, kl_R_T)
        return loss

    def _surrogate(self, logprob_R_T: Tensor, ratio_R_T: Tensor, micro: MicroBatch) -> tuple[Tensor, Tensor, Tensor]:
        """The surrogate of each token, and where it is clipped from below and from above."""
        chosen, advantages_R_1 = self._algorithm.surrogate, micro.advantages_R_1
        if chosen.kind == "policy_gradient":
            never = torch.zeros_like(micro.mask_R_T)
            return surrogates.policy_gradient(logprob_R_T, advantages_R_1), never, never
        loss = surrogates.clip(
            ratio_R_T,
            advantages_R_1,
            epsilon_low=chosen.epsilon_low,
            epsilon_high=chosen.epsilon_high,
            delta=chosen.delta,
        )
        low = surrogates.clipped_low(ratio_R_T, advantages_R_1, epsilon_low=chosen.epsilon_low)
        high = surrogates.clipped_high(ratio_R_T, advantages_R_1, epsilon_high=chosen.epsilon_high)
        return loss, low, high

    def learning_rate(self, step: int) -> float:
        """The learning rate of step `step` (from 0): warm-up, then constant, or falling to 0 by the last step."""
        optimizer, total = self._config.optimizer, self._config.budget.steps
        if step < optimizer.warmup_steps:
            return optimizer.learning_rate * (step + 1) / optimizer.warmup_steps
        done = (step - optimizer.warmup_steps) / max(1, total - optimizer.warmup_steps)
        if optimizer.schedule == "linear":
            return optimizer.learning_rate * (1 - done)
        if optimizer.schedule == "cosine":
            return optimizer.learning_rate * (1 + math.cos(math.pi * done)) / 2
        return optimizer.learning_rate

    def _split(self, rollout: Rollout, advantages_R: Tensor, trained_R: Tensor) -> tuple[list[MicroBatch], Tensor]:
        """Micro-batches within the token budget, and the step's mask, (R, T)."""
        completions = [completion.ids for completion in rollout.completions_R]
        lengths_R = torch.tensor([len(ids) for ids in completions])
        mask_R_T = torch.arange(int(lengths_R.max()))[None, :] < lengths_R[:, None]
        weights_R_T = token_weights(
            (mask_R_T & trained_R[:, None].bool()).to(advantages_R.dtype),
            aggregation=self._algorithm.aggregation,
            max_new_tokens=self._config.sampling.max_new_tokens,
        )
        prompts = [rollout.prompt_of(row) for row in range(rollout.rows)]
        device = self._policy.device
        micro_batches = []
        for rows in micro_batch_rows(prompts, completions, self._config.optimizer.micro_batch_tokens):
            batch = TokenBatch.of([prompts[row] for row in rows], [completions[row] for row in rows], device)
            width = batch.mask_R_T.shape[1]
            micro_batches.append(
                MicroBatch(
                    rows,
                    batch,
                    advantages_R[rows, None].to(device),
                    weights_R_T[rows, :width].to(device),
                )
            )
        return micro_batches, mask_R_T

    @torch.no_grad()
    def _measure_after(self, micro_batches: Sequence[MicroBatch], record: TokenRecord) -> None:
        for micro in micro_batches:
            values = self._policy.logprobs(micro.batch, temperature=self._temperature)
            if record.logprob_after is not None:
                micro.store(record.logprob_after, values.logprob_R_T)

    def _count_skipped(self, step: int, applied: bool, metrics: dict[str, float]) -> None:
        self._skipped = 0 if applied else self._skipped + 1
        if self._skipped >= _MAX_SKIPPED_IN_A_ROW:
            raise RunFailure(
                "diverged",
                f"The gradient was not finite in {self._skipped} steps in a row, the last being step {step} (loss "
                f"{metrics['loss']}). Nothing of it was applied: start again from the last checkpoint with a lower "
                f"learning rate than {self._config.optimizer.learning_rate:g}.",
            )
