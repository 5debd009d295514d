"""The update: from a rollout and its advantages to new weights, in micro-batches whose split cannot change the result."""

import math
from collections.abc import Callable, Collection, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from backend.contract.advantage import Gae
from backend.contract.grpo import GrpoConfig
from backend.contract.surrogate import Dpo
from worker.algorithms.objective import TokenTerms, kl_per_token, token_terms, token_weights
from worker.algorithms.preference import dpo_loss, preference_margin
from worker.credit import Credit
from worker.micro_batches import Batch, MicroBatch, split, with_progress
from worker.optimization import Optimization
from worker.policy.device import Transfers, send
from worker.policy.logprobs import TokenValues
from worker.policy.policy import Policy
from worker.policy.recomputing import recomputing
from worker.ranks.ranks import Ranks
from worker.rollout.engine import Rollout, quiet
from worker.token_record import TokenRecord

OnProgress = Callable[[str, int, int], None]
OnPass = Callable[[Mapping[str, float]], None]


@dataclass(frozen=True)
class Update:
    """What an update did: metrics under their field names."""

    metrics: dict[str, float]
    fault: str  # what was not finite, in words: the weights are as they were; "" if the update was applied
    moved: bool  # False where no pass had a gradient: there was nothing to learn

    @property
    def applied(self) -> bool:
        """Whether the weights are those after the update."""
        return not self.fault


@dataclass
class _Pass:
    """One update on a batch: what it trains on, and the running means of its metrics, by name."""

    batch: Batch
    credit: Credit
    weights_R_T: Tensor
    tokens: TokenRecord | None  # filled in by the last pass on a batch
    transfers: Transfers = field(default_factory=Transfers)
    loss: float = 0.0
    sums: dict[str, tuple[float, int]] = field(default_factory=dict)

    def add(self, name: str, values: Tensor) -> None:
        """Add a micro-batch's values. On the CPU: Apple's GPUs have no float64."""
        total, count = self.sums.get(name, (0.0, 0))
        self.sums[name] = total + float(values.double().sum()), count + values.numel()

    def add_tokens(self, name: str, mask_R_T: Tensor, values_R_T: Tensor) -> None:
        self.add(name, values_R_T[mask_R_T])

    def add_loss(self, part: Tensor) -> None:
        self.loss += float(part)

    def join(self, ranks: Ranks) -> None:
        """Add up what the processes have, so that each has all of it."""
        first, *others = ranks.gather((self.loss, self.sums))
        self.loss, self.sums = first
        for loss, sums in others:
            self.loss += loss
            for name, (total, count) in sums.items():
                before = self.sums.get(name, (0.0, 0))
                self.sums[name] = before[0] + total, before[1] + count

    def metrics(self) -> dict[str, float]:
        return {name: total / count if count else math.nan for name, (total, count) in self.sums.items()}


class Learner:
    """Holds the optimizer. For each step of a run: `split`, `measure_before`, then `update`."""

    def __init__(self, policy: Policy, config: GrpoConfig, make_room: Callable[[], bool] = lambda: False) -> None:
        """`make_room` gives memory of the device back that something else holds, and says whether there was any."""
        self._policy, self._config = policy, config
        self._algorithm = config.algorithm
        self._temperature = 1.0 if config.algorithm.logprobs == "plain" else config.sampling.temperature
        groups = [{"params": policy.parameters(), "lr": config.optimizer.learning_rate}]
        if isinstance(config.algorithm.advantage, Gae):
            policy.add_value_head()
            head = [parameter for name, parameter in policy.named_parameters() if name.startswith("value_head.")]
            groups.append({"params": head, "lr": config.algorithm.advantage.value_learning_rate})
        self._optimization = Optimization(
            policy,
            config.optimizer,
            steps=config.budget.steps,
            remarks=policy.remarks,
            make_room=make_room,
            groups=groups,
        )
        self.optimizer = self._optimization.adamw

    def split(self, rollout: Rollout, left_out: Collection[int] = ()) -> Batch:
        """The rollout in micro-batches within the token budget; the completions of a preference pair stay together."""
        return self._optimization.once_more(
            lambda: split(
                rollout,
                self._policy,
                budget=self._config.optimizer.micro_batch_tokens,
                together=rollout.group_size if self._algorithm.surrogate.kind == "dpo" else 1,
                with_supports=self._algorithm.logprobs == "renormalized",
                left_out=left_out,
            )
        )

    def nothing_to_learn(self, credit: Credit) -> set[int]:
        """The rows of dead groups, where passing them through the model could change no gradient.

        Their tokens stay in the denominators of the loss.
        """
        algorithm = self._algorithm
        compared = algorithm.kl.beta > 0 or algorithm.needs_reference
        if compared or algorithm.entropy_bonus > 0 or algorithm.advantage.kind == "gae":
            return set()
        group_size = credit.rewards_P_G.shape[1]
        dead_P = (credit.advantages_R_T == 0).view(len(credit.rewards_P_G), -1).all(-1)
        return set(dead_P.repeat_interleave(group_size).nonzero()[:, 0].tolist())

    def measure_before(self, batch: Batch, on_progress: OnProgress = quiet) -> None:
        """Measure what does not change while the batch is trained on: the reference, and where needed values and KL.

        `on_progress` gets the phase, the rows done and their total, and may raise to end the step.
        """
        self._optimization.once_more(lambda: self._measure_before(batch, on_progress))

    @torch.no_grad()
    def _measure_before(self, batch: Batch, on_progress: OnProgress) -> None:
        transfers, algorithm = Transfers(), self._algorithm
        # Rewards or advantages may need the policy's values, or its KL.
        penalised = algorithm.kl.placement == "reward" and algorithm.kl.beta > 0
        looks = penalised or algorithm.advantage.kind == "gae"

        def idle() -> None:
            if algorithm.needs_reference:
                self._policy.idle(reference=True)
            if looks:
                self._policy.idle()
            on_progress("reference", len(batch.own), len(batch.own))

        for micro, done in with_progress(batch, idle if algorithm.needs_reference or looks else quiet):
            if algorithm.needs_reference:
                micro.reference_R_T = self._policy.reference_logprobs(
                    micro.batch, temperature=self._temperature
                ).full_logprob_R_T
                transfers.when_known(micro.reference_R_T, partial(batch.tokens.put, "reference_logprob", micro.rows))
            if looks:
                values = self._policy.logprobs(micro.batch, temperature=self._temperature)
                if values.value_R_T is not None:
                    transfers.when_known(values.value_R_T, partial(batch.tokens.put, "value", micro.rows))
                if micro.reference_R_T is not None:
                    full_R_T, estimator = values.full_logprob_R_T, algorithm.kl.estimator
                    kl_R_T = kl_per_token(full_R_T, micro.reference_R_T, estimator=estimator)
                    transfers.when_known(kl_R_T, partial(batch.tokens.put, "kl", micro.rows))
            on_progress("reference", done, len(batch.own))
        transfers.fetch()
        self._share(batch)

    def _share(self, batch: Batch) -> None:
        """Give every process what each has found of its tokens."""
        if not self._policy.ranks.alone:
            for part in self._policy.ranks.gather(batch.tokens.part(batch.own)):
                for name, (rows, values_r_T) in part.items():
                    batch.tokens.put(name, rows, values_r_T)

    def update(
        self,
        step: int,
        batch: Batch,
        credit: Credit,
        trained_R: Tensor,
        on_progress: OnProgress = quiet,
        on_pass: OnPass = quiet,
    ) -> Update:
        """Train on a batch; `trained_R` is False for completions left out of the loss. Fills in the batch's tokens.

        Groups that can teach nothing pass through no model, and nothing is known of their tokens. `on_pass` gets the metrics of each
        update of the weights, while its gradient is still there.

        Raises RunFailure `diverged` when the gradient was not finite three steps in a row.
        """
        weights_R_T = self._weights(batch, trained_R)
        left_out = self.nothing_to_learn(credit)
        if left_out:
            batch = replace(self.split(batch.rollout, left_out), tokens=batch.tokens)
        passes, faults = [], []
        for index in range(self._algorithm.updates_per_batch):
            tokens = batch.tokens if index == self._algorithm.updates_per_batch - 1 else None
            begin = partial(_Pass, batch, credit, weights_R_T, tokens)
            done = self._optimization.once_more(partial(self._pass_through, begin, on_progress))
            measured, fault = self._optimization.step(step, done.loss)
            on_pass(measured)
            passes.append(measured | done.metrics())
            faults.append(fault)
        if self._config.telemetry.logprob_after_update:
            self.measure(batch, "logprob_after")
        self._share(batch)
        metrics = {name: sum(one[name] for one in passes) / len(passes) for name in passes[0]}
        fault = next(filter(None, faults), "")
        self._optimization.count(step, fault=fault, loss=metrics["loss"])
        return Update(metrics, fault, any(one["grad_norm"] != 0 for one in passes))

    def _weights(self, batch: Batch, trained_R: Tensor) -> Tensor:
        weights_R_T: Tensor = token_weights(
            (batch.tokens.mask & trained_R[:, None].bool()).float(),
            aggregation=self._algorithm.aggregation,
            max_new_tokens=self._config.sampling.max_new_tokens,
            group_size=batch.rollout.group_size,
        )
        return weights_R_T

    def gradient(self, batch: Batch, credit: Credit, trained_R: Tensor, rows: Collection[int]) -> float:
        """Put the gradient of these rows' part of the loss into the parameters, for the weights as they are; the part.

        The parts of all rows add up to the loss, and so do their gradients (before they are scaled down to `max_grad_norm`). What the
        ratio and the reference are taken from is known once the batch was trained on: each pass on it has its own weights, and the same
        old log-probs.
        """
        begin = partial(_Pass, self._part(batch, rows), credit, self._weights(batch, trained_R), None)
        return self._optimization.once_more(partial(self._pass_through, begin, quiet)).loss

    def token_losses(self, batch: Batch, credit: Credit, trained_R: Tensor, row: int) -> Tensor:
        """The parts of the loss of a completion's tokens, (t,), with gradient; they add up to the completion's part."""
        part = self._part(batch, [row])
        [micro] = part.micro_batches
        this_pass = _Pass(part, credit, self._weights(batch, trained_R), None)
        terms = self._terms(micro, this_pass)[1]
        losses_T: Tensor = (micro.of(this_pass.weights_R_T) * terms.loss_R_T)[micro.mask_R_T]
        return losses_T

    def under(self, config: GrpoConfig) -> "Learner":
        """The same learner with the algorithm of another configuration, which shares policy and optimizer. It has no critic of its own."""
        other = copy(self)
        other._config, other._algorithm = config, config.algorithm
        return other

    def _part(self, batch: Batch, rows: Collection[int]) -> Batch:
        """These rows of the batch alone, with what is known of the old policy and the reference."""
        others = set(range(batch.rollout.rows)) - set(rows)
        part = replace(self.split(batch.rollout, others), tokens=batch.tokens)
        old_R_T, reference_R_T = (batch.tokens.get(name) for name in ("old_logprob", "reference_logprob"))
        for micro in part.micro_batches:
            if old_R_T is not None:
                micro.old_logprob_R_T = micro.of(old_R_T.nan_to_num(nan=0.0))
            if reference_R_T is not None:
                micro.reference_R_T = micro.of(reference_R_T.nan_to_num(nan=0.0))
        return part

    def _pass_through(self, begin: Callable[[], _Pass], on_progress: OnProgress) -> _Pass:
        """Forward and backward over the whole rollout, from the beginning each time that it is called."""
        this_pass = begin()
        self.optimizer.zero_grad(set_to_none=True)
        rows = sum(len(micro.rows) for micro in this_pass.batch.micro_batches)

        def idle() -> None:
            self._policy.idle()
            on_progress("update", rows, rows)

        with recomputing(self._policy.model):
            for micro, done in with_progress(this_pass.batch, idle):
                part = self._loss(micro, this_pass)
                part.backward()  # type: ignore[no-untyped-call]
                this_pass.transfers.when_known(part, this_pass.add_loss)
                on_progress("update", done, rows)
        this_pass.transfers.fetch()
        this_pass.join(self._policy.ranks)
        return this_pass

    def _loss(self, micro: MicroBatch, this_pass: _Pass) -> Tensor:
        """This micro-batch's share of the step's loss: the sum of weight × token loss, and of the pairs' losses."""
        values, terms = self._terms(micro, this_pass)
        loss: Tensor = (micro.of(this_pass.weights_R_T) * terms.loss_R_T).sum()
        if isinstance(self._algorithm.surrogate, Dpo):
            loss = loss + self._pair_losses(self._algorithm.surrogate, micro, values, this_pass)
        self._measure(micro, values, terms, this_pass)
        return loss

    def _terms(self, micro: MicroBatch, this_pass: _Pass) -> tuple[TokenValues, TokenTerms]:
        """The values of this micro-batch's tokens, and what each of them adds to the loss before it is weighed."""
        algorithm, credit = self._algorithm, this_pass.credit
        values = self._policy.logprobs(micro.batch, temperature=self._temperature)
        if micro.old_logprob_R_T is None:  # the first pass: the old policy is this one, and the ratio exactly 1
            micro.old_logprob_R_T = values.logprob_R_T.detach()
            if algorithm.kl.reference == "old":
                micro.reference_R_T = values.full_logprob_R_T.detach()
        terms = token_terms(
            algorithm,
            logprob_R_T=values.logprob_R_T,
            old_logprob_R_T=micro.old_logprob_R_T,
            advantages_R_T=micro.of(credit.advantages_R_T),
            mask_R_T=micro.mask_R_T.float(),
            reference_logprob_R_T=micro.reference_R_T,
            full_logprob_R_T=values.full_logprob_R_T,
            entropy_R_T=values.entropy_R_T,
            values_R_T=values.value_R_T,
            # An unscored completion has none, and weighs 0: only a number times 0 is 0.
            returns_R_T=None if credit.returns_R_T is None else micro.of(credit.returns_R_T.nan_to_num(nan=0.0)),
        )
        return values, terms

    def _pair_losses(self, dpo: Dpo, micro: MicroBatch, values: TokenValues, this_pass: _Pass) -> Tensor:
        """DPO's loss of each group's best against its worst; a group without such a pair, or not trained on, has none."""
        assert micro.reference_R_T is not None  # noqa: S101 — looked up or taken from the first pass
        group_size = this_pass.batch.rollout.group_size
        advantages_R = micro.on_host(this_pass.credit.advantages_R_T)[:, 0]
        # A prompt's weight is the same for all its tokens (aggregation group_sum).
        weight_R = micro.on_host(this_pass.weights_R_T)[:, 0]
        logprob_R = (values.full_logprob_R_T * micro.mask_R_T).sum(-1)
        reference_R = (micro.reference_R_T * micro.mask_R_T).sum(-1)
        best_R, worst_R = ((advantages_R * sign > 0) & (weight_R > 0) for sign in (1, -1))
        paired_P = best_R.view(-1, group_size).any(-1) & worst_R.view(-1, group_size).any(-1)
        paired_R = paired_P.repeat_interleave(group_size)
        device = logprob_R.device
        weight_N = send(weight_R[best_R & paired_R], device)
        # row numbers
        best_N, worst_N = (send((end_R & paired_R).nonzero()[:, 0], device) for end_R in (best_R, worst_R))
        margin_N = preference_margin(
            logprob_R[best_N], logprob_R[worst_N], reference_R[best_N], reference_R[worst_N], beta=dpo.beta
        )
        right_N = (margin_N.sign() + 1) / 2  # a tie counts as half right
        for name, values_N in {"rewards/margins": margin_N, "rewards/accuracies": right_N}.items():
            this_pass.transfers.when_known(values_N, partial(this_pass.add, name))
        loss: Tensor = (weight_N * dpo_loss(margin_N)).sum()
        return loss

    def _measure(self, micro: MicroBatch, values: TokenValues, terms: TokenTerms, this_pass: _Pass) -> None:
        """Add to the pass's metrics and, in the last pass, put the values of every token into the record, once they are here."""
        mask_R_T = this_pass.batch.tokens.mask[micro.rows, : micro.mask_R_T.shape[1]]
        credit, tokens = this_pass.credit, this_pass.tokens
        measured = {
            "entropy": values.entropy_R_T,
            "ratio_mean": terms.ratio_R_T,
            "clip_ratio/low_mean": terms.low_R_T,
            "clip_ratio/high_mean": terms.high_R_T,
        }
        if terms.kl_R_T is not None:
            measured["kl"] = terms.kl_R_T
        for name, tensor in measured.items():
            this_pass.transfers.when_known(tensor, partial(this_pass.add_tokens, name, mask_R_T))
        if values.value_R_T is not None and credit.returns_R_T is not None:
            returns_R_T = credit.returns_R_T[micro.rows, : mask_R_T.shape[1]].float()

            def add_error(value_R_T: Tensor) -> None:
                error_R_T = value_R_T - returns_R_T
                this_pass.add("loss/value_avg", error_R_T[mask_R_T & ~error_R_T.isnan()] ** 2)

            this_pass.transfers.when_known(values.value_R_T, add_error)
        if tokens is None:
            return
        recorded = {
            "old_logprob": micro.old_logprob_R_T,
            "logprob": values.logprob_R_T,
            "entropy": values.entropy_R_T,
            "ratio": terms.ratio_R_T,
            "clipped": terms.low_R_T | terms.high_R_T,
            "kl": terms.kl_R_T,
            "reference_logprob": micro.reference_R_T,
        }
        for name, values_R_T in recorded.items():
            if values_R_T is not None:
                this_pass.transfers.when_known(values_R_T, partial(tokens.put, name, micro.rows))
        tokens.put("advantage", micro.rows, micro.on_host(credit.advantages_R_T).expand(mask_R_T.shape))
        if credit.returns_R_T is not None:
            tokens.put("returns", micro.rows, micro.on_host(credit.returns_R_T))

    def measure(self, batch: Batch, name: str) -> None:
        """Put the log-probs of the batch's completions under the weights as they are into its tokens, by this name."""
        self._optimization.once_more(lambda: self._measure_logprobs(batch, name))

    @torch.no_grad()
    def _measure_logprobs(self, batch: Batch, name: str) -> None:
        for micro, _ in with_progress(batch, self._policy.idle):
            values = self._policy.logprobs(micro.batch, temperature=self._temperature)
            batch.tokens.put(name, micro.rows, values.logprob_R_T)
