"""A replay: the steps of a run from a checkpoint on, done again exactly, and the last of them taken apart."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from backend.contract.algorithm import Algorithm
from backend.contract.base import Json, finite
from backend.contract.groups import GroupReport
from backend.contract.grpo import GrpoConfig
from backend.contract.protocol import TraceTooLarge
from backend.contract.replay import (
    MOST_COMPARED,
    MOST_TOKEN_SHARES,
    MOST_TOKENS,
    GroupDetail,
    MovedToken,
    OtherUpdate,
    Part,
    Replayed,
)
from backend.contract.token_texts import TokenTexts
from worker.checkpoint import TrainingState, complete_checkpoint, load_optimizer, load_state, write_checkpoint
from worker.credit import assign_credit
from worker.group_records import group_reports, sampled_reports
from worker.group_step import Drawn, GroupStep, trained
from worker.groups import OnProgress, PhaseClock, Scored
from worker.micro_batches import Batch
from worker.policy.policy import Policy
from worker.replay.gradients import Agreement
from worker.replay.records import NotTheSame, Recorded, RecordedScores, StepRecord
from worker.replay.step_update import Effect, StepUpdate
from worker.reporter import StepContent
from worker.rollout.draws import Draws
from worker.rollout.engine import Engine, quiet
from worker.tasks.items import Items
from worker.traces import trace_file

GRADIENTS = "gradients"
"""The phase in which the groups' gradients are computed."""
REPEATING = "repeat"
"""The phase in which a fork's worker does steps of the trunk again."""


@dataclass(frozen=True)
class Replayable:
    """A run as its replay needs it."""

    run_id: int
    config: GrpoConfig
    policy: Policy  # loaded as the run's own attempt at the checkpoint would load it
    engine: Engine
    items: Items
    checkpoint: Path | None  # None: the run's beginning
    record: Callable[[int], StepRecord]
    of_trunk: Mapping[str, Json] | None = (
        None  # the configuration of the run whose checkpoint it is, if this is a fork of that
    )


class Replay:
    """Goes from step to step; each is compared with what the run recorded of it, and a difference ends the replay."""

    def __init__(self, run: Replayable) -> None:
        """Raises RunFailure `replay_differs` where this process computes the model in another way than the run did."""
        self._run, self._policy = run, run.policy
        self._scores = RecordedScores(run.config.rewards)
        self._step = GroupStep(run.config, run.policy, run.engine, run.items, self._scores)
        self._texts = TokenTexts(run.policy.tokenizer)
        self.state = TrainingState(step=0, cursor=0, num_tokens=0, samples=0, elapsed_seconds=0.0)
        if run.checkpoint is not None:
            self.state = load_state(run.checkpoint)
            load_optimizer(run.checkpoint, run.policy, self._step.learner.optimizer)
            self._step.restore(run.checkpoint, run.of_trunk)
        self.from_step, self._began = self.state.step, time.monotonic()

    def repeat(self, step: int, on_progress: OnProgress = quiet) -> StepContent:
        """Do a step again, which must be the next one; its metrics. Raises NotTheSame."""
        record, drawn = self._draw(step, on_progress)
        update = self._step.update(step, drawn, PhaseClock(), on_progress)
        record.require_same(drawn, update)
        self._require_same_paths(step)
        self.state = self.state.after_step(drawn=drawn.prompts, tokens=drawn.tokens, samples=drawn.samples)
        return StepContent(update.metrics)

    def save(self, folder: Path) -> None:
        """Write where it is as a checkpoint, from which a fork goes on. What it took counts as time of training."""
        seconds = self.state.elapsed_seconds + time.monotonic() - self._began
        state = replace(self.state, elapsed_seconds=seconds, computed_by=self._policy.computed_by)
        write_checkpoint(folder, self._policy, self._step.learner.optimizer, state, self._step.more())
        complete_checkpoint(folder)

    def _draw(self, step: int, on_progress: OnProgress) -> tuple[StepRecord, Drawn]:
        record = self._run.record(step)
        self._scores.open(record)
        self._step.begin(step)
        return record, self._step.draw(step, self.state.cursor, PhaseClock(), on_progress)

    def _require_same_paths(self, step: int) -> None:
        if self.state.computed_by not in ("", now := self._policy.computed_by):
            raise NotTheSame(
                step, f"the run was computed by {self.state.computed_by}, and this worker computes by {now}"
            )

    def explain(
        self, step: int, on_progress: OnProgress = quiet, *, group: int | None = None, other: Algorithm | None = None
    ) -> StepContent:
        """Do a step again and take its update apart; the weights are then those before it, and nothing goes on. Raises NotTheSame.

        A `group` is taken apart by completion and token, too; of an `other` algorithm its update is compared.
        """
        learner, config = self._step.learner, self._run.config
        probes = self._sample_probes(on_progress)
        record, drawn = self._draw(step, on_progress)
        batches = [drawn.batch, *([learner.split(probes.rollout)] if probes else [])]
        for batch in batches[1:]:
            learner.measure(batch, "old_logprob")
        moments = copy_of_moments(learner.optimizer) if other is not None else {}
        made = StepUpdate(
            self._policy,
            learner.optimizer,
            max_grad_norm=config.optimizer.max_grad_norm,
            updates_per_batch=config.algorithm.updates_per_batch,
        )
        update = self._step.update(step, drawn, PhaseClock(), on_progress, made.see)
        record.require_same(drawn, update)
        self._require_same_paths(step)
        for batch in batches:
            learner.measure(batch, "logprob_after")
        made.close()
        self._measure_left_out(drawn)
        found = self._take_apart(step, drawn, made, on_progress)
        if group is not None and group < len(drawn.batch.rollout.items_P):
            found = found.model_copy(update={"detail": self._detail(group, drawn, made, on_progress)})
        if other is not None:
            learner.optimizer.state.clear()
            learner.optimizer.state.update(moments)
            compared = self._other_update(step, other, drawn, made, batches[1:], on_progress)
            found = found.model_copy(update={"other": compared})
        groups = group_reports(
            drawn.batch.rollout, drawn.scored.scores, drawn.credit, drawn.batch.tokens, beta=config.algorithm.kl.beta
        )
        if probes:
            groups += self._probe_reports(record, probes, batches[1], first=len(groups))
        content = StepContent(update.metrics, groups, replayed=found)
        try:
            rows = range(drawn.batch.rollout.rows)
            content.trace = trace_file(list(rows), self._texts, drawn.batch.rollout, drawn.batch.tokens)
        except TraceTooLarge as error:
            content.warnings.append(f"step {step}: {error}, and are not kept")
        return content

    # ---- the parts of an explanation

    def _sample_probes(self, on_progress: OnProgress) -> Scored | None:
        """What the policy says to the run's probes before the step, as the run's own probes are drawn."""
        config, items = self._run.config, self._run.items
        probed = (items.held_out or items.train)[: config.telemetry.probe_prompts]
        if not probed:
            return None
        return replace(self._step.sampler, scorer=None).sample_and_score(
            probed,
            config.sampling.group_size,
            config.sampling,
            Draws(config.budget.seed, "probe"),
            on_progress=lambda phase, done, total: on_progress("probes", done, total),
            logprobs=config.algorithm.logprobs,
        )

    def _measure_left_out(self, drawn: Drawn) -> None:
        """The log-probs before the update of completions that the update passed through no model."""
        tokens = drawn.batch.tokens
        known_R = tokens.known("old_logprob")
        if known_R.all():
            return
        part = self._step.learner.split(drawn.batch.rollout, set(np.flatnonzero(known_R).tolist()))
        self._step.learner.measure(replace(part, tokens=tokens), "old_logprob")
        rows = np.flatnonzero(~known_R).tolist()
        tokens.put("advantage", rows, drawn.credit.advantages_R_T.float().expand(tokens.mask.shape)[rows])

    def _take_apart(self, step: int, drawn: Drawn, made: StepUpdate, on_progress: OnProgress) -> Replayed:
        learner, rollout = self._step.learner, drawn.batch.rollout
        size, count = rollout.group_size, len(rollout.items_P)
        nothing = learner.nothing_to_learn(drawn.credit)
        parameters = [parameter for _, parameter in self._policy.named_parameters()]
        agreement = Agreement(count, parameters, self._policy.device)
        effects = [Effect(norm=0.0, cosine=None, size=0.0, share=0.0)] * count
        for p in range(count):
            on_progress(GRADIENTS, p, count)
            rows = range(p * size, (p + 1) * size)
            if nothing.issuperset(rows):
                continue
            effects[p] = made.effect(
                partial(learner.gradient, drawn.batch, drawn.credit, drawn.trained_R, rows), take=True
            )
            agreement.put(p, [one.grad for one in parameters], effects[p].norm)
        made.clear()
        on_progress(GRADIENTS, count, count)
        parts = [_part(p, one) for p, one in enumerate(effects)]
        compared = sorted(range(count), key=lambda p: -abs(parts[p].share))[:MOST_COMPARED]
        return Replayed(
            run_id=self._run.run_id,
            step=step,
            from_step=self.from_step,
            update_norm=made.norm,
            momentum=made.momentum,
            decay=made.decay,
            apart=finite(made.remainder),
            groups=parts,
            compared=compared,
            agreement=agreement.cosines(compared),
            projected=agreement.projected,
            projection_error=agreement.error(compared),
            tokens=self._moved_tokens(drawn),
        )

    def _detail(self, group: int, drawn: Drawn, made: StepUpdate, on_progress: OnProgress) -> GroupDetail:
        """Each completion's part, and the share of each of its tokens."""
        learner, rollout, size = self._step.learner, drawn.batch.rollout, drawn.batch.rollout.group_size
        rows = range(group * size, (group + 1) * size)
        if learner.nothing_to_learn(drawn.credit).issuperset(rows):
            none = [Part(index=place, norm=0.0, cosine=None, size=0.0, share=0.0) for place in range(size)]
            return GroupDetail(
                group=group, completions=none, tokens=[[0.0] * len(rollout.completions_R[row].ids) for row in rows]
            )
        few = sum(len(rollout.completions_R[row].ids) for row in rows) <= MOST_TOKEN_SHARES
        parts, shares = [], []
        for place, row in enumerate(rows):
            on_progress(GRADIENTS, place, size)
            known = drawn.batch, drawn.credit, drawn.trained_R
            parts.append(_part(place, made.effect(partial(learner.gradient, *known, [row]))))
            made.clear()
            if few:
                shares.append(made.shares(partial(learner.token_losses, *known, row)))
        return GroupDetail(group=group, completions=parts, tokens=shares)

    def _other_update(
        self,
        step: int,
        other: Algorithm,
        drawn: Drawn,
        made: StepUpdate,
        probes: Sequence[Batch],
        on_progress: OnProgress,
    ) -> OtherUpdate:
        """Make the other update, with the weights and moments that the step found; they are not put back."""
        config = self._run.config.model_copy(update={"algorithm": other})
        learner = self._step.learner.under(config)
        parameters = [parameter for _, parameter in self._policy.named_parameters()]
        before = [parameter.detach().clone() for parameter in parameters]
        batch = learner.split(drawn.batch.rollout)
        learner.measure_before(batch)
        credit = assign_credit(config, drawn.scored.scores, batch.tokens)
        trained_R = trained(config, credit, batch.rollout)
        learner.update(step, batch, credit, trained_R, on_progress=on_progress)
        for of_probes in probes:
            learner.measure(of_probes, "logprob_other")
        norm, cosine = made.compared([one.detach() - held for one, held in zip(parameters, before, strict=True)])
        return OtherUpdate(
            algorithm=other.model_dump(mode="json"),
            cosine=cosine,
            update_norm=norm,
            probes=[
                row
                for one in probes
                for row in (one.tokens.sums("logprob_other") - one.tokens.sums("old_logprob"))
                .reshape(-1, one.rollout.group_size)
                .tolist()
            ],
        )

    def _moved_tokens(self, drawn: Drawn) -> list[MovedToken]:
        """The tokens that moved most against their advantage."""
        tokens, rollout = drawn.batch.tokens, drawn.batch.rollout
        before_R_T, after_R_T, advantage_R_T = (
            tokens[name].double().numpy() for name in ("old_logprob", "logprob_after", "advantage")
        )
        against_R_T = np.nan_to_num(advantage_R_T * (after_R_T - before_R_T), nan=0.0)
        moved: list[MovedToken] = []
        seen = set()
        for row, place in zip(
            *np.unravel_index(np.argsort(against_R_T, axis=None, kind="stable"), against_R_T.shape), strict=True
        ):
            if against_R_T[row, place] >= 0 or len(moved) == MOST_TOKENS:
                break
            same = int(row) // rollout.group_size, tuple(rollout.completions_R[row].ids[: place + 1])
            if same in seen:  # siblings that begin alike have the same log-probs
                continue
            seen.add(same)
            text = self._texts.of(rollout.completions_R[row].ids)[place].decode(errors="replace")
            moved.append(
                MovedToken(
                    group=int(row) // rollout.group_size,
                    completion=int(row) % rollout.group_size,
                    position=int(place),
                    text=text,
                    advantage=float(advantage_R_T[row, place]),
                    before=float(before_R_T[row, place]),
                    after=float(after_R_T[row, place]),
                )
            )
        return moved

    def _probe_reports(self, record: StepRecord, probes: Scored, batch: Batch, *, first: int) -> list[GroupReport]:
        """The probes with their log-probs before and after, and with their rewards where the run recorded them at this step."""
        sums = {
            "logprob_sum": batch.tokens.sums("old_logprob"),
            "logprob_sum_after": batch.tokens.sums("logprob_after"),
        }
        recorded = {_said(group): GroupReport.model_validate(group.model_dump()) for group in record.probes}
        size, reports = probes.rollout.group_size, []
        for p, sampled in enumerate(sampled_reports(probes)):
            report = recorded.get(_said(sampled), sampled)
            completions = [
                one.model_copy(
                    update={name: finite(float(sums_R[p * size + one.index])) for name, sums_R in sums.items()}
                )
                for one in report.completions
            ]
            update = {"index": first + p, "state": "probe", "completions": completions}
            reports.append(report.model_copy(update=update))
        return reports


def _part(index: int, effect: Effect) -> Part:
    return Part(index=index, norm=finite(effect.norm), cosine=effect.cosine, size=effect.size, share=effect.share)


def copy_of_moments(optimizer: torch.optim.Optimizer) -> dict[torch.Tensor, dict[str, torch.Tensor]]:
    """What the optimizer keeps of each parameter, apart from it."""
    return {one: {name: value.clone() for name, value in state.items()} for one, state in optimizer.state.items()}


def _said(group: Recorded) -> tuple[str, ...]:
    """What tells whether two groups are the same: the prompt, and the completions."""
    return group.prompt_id, *(one.text for one in group.completions)
