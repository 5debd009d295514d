"""What a finished step tells: its metrics, its groups, and the tokens of some completions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backend.contract.groups import GroupReport
from backend.contract.grpo import GrpoConfig
from worker.credit import Credit
from worker.group_records import filtered_reports, group_reports
from worker.groups import Scored
from worker.learner import Update
from worker.reporter import StepContent
from worker.step_metrics import step_metrics
from worker.token_record import TokenRecord
from worker.token_texts import TokenTexts
from worker.traces import TraceTooLarge, trace_file, traced_rows


@dataclass(frozen=True)
class FinishedStep:
    """All that is told of a step is made from this. Nothing of it changes any more, so that it can be told beside the next."""

    step: int
    scored: Scored
    filtered: Scored | None
    tokens: TokenRecord
    credit: Credit
    update: Update
    measured: Mapping[str, float]  # what the loop measured itself: times, costs
    probes: Sequence[GroupReport] = ()  # sampled before the update


def describe(finished: FinishedStep, config: GrpoConfig, texts: TokenTexts) -> StepContent:
    """The step as it is reported."""
    metrics = step_metrics(finished.scored, finished.filtered, finished.tokens, finished.credit, finished.update)
    content = StepContent({**metrics, **finished.measured}, _groups(finished, beta=config.algorithm.kl.beta))
    rows = traced_rows(config.telemetry, finished.step, finished.credit.rewards_P_G)
    try:
        content.trace = trace_file(rows, texts, finished.scored.rollout, finished.tokens)
    except TraceTooLarge as error:
        content.warnings.append(f"step {finished.step}: {error}, and are not kept; choose extremes, or smaller batches")
    return content


def _groups(finished: FinishedStep, *, beta: float) -> list[GroupReport]:
    scored, filtered = finished.scored, finished.filtered
    kept = group_reports(scored.rollout, scored.scores, finished.credit, finished.tokens, beta=beta)
    if filtered is not None:
        kept += filtered_reports(filtered, first_index=len(kept))
    probes = enumerate(finished.probes, start=len(kept))
    return kept + [probe.model_copy(update={"index": index}) for index, probe in probes]
