"""Routes of what a run measured: metrics, logs, steps, groups, prompts and completions."""

from typing import Annotated

from fastapi import APIRouter, Query

from backend.contract import queries as q
from backend.contract import records as r
from backend.contract.groups import Group, GroupSummary, StepSummary, TokenTrace
from backend.contract.inspection import CompletionHit, Distribution, PromptSummary, StepScores
from backend.parameters import RowId, StepNumber
from backend.runs import store as runs
from backend.services import ServicesDep
from backend.telemetry import completions, groups, logs, metrics, prompts, scores, tokens, traces

router = APIRouter(prefix="/api/v1", tags=["telemetry"])


@router.get("/runs/{run_id}/metrics")
def run_metrics(services: ServicesDep, run_id: RowId, query: Annotated[q.MetricQuery, Query()]) -> r.Metrics:
    """Live series of a run."""
    with services.database.read() as tx:
        runs.require(tx, run_id)
        return metrics.read(tx, run_id, query)


@router.get("/metrics")
def compare_metrics(services: ServicesDep, query: Annotated[q.ComparedMetricQuery, Query()]) -> r.Page[r.Metrics]:
    """The same series of several runs."""
    with services.database.read() as tx:
        for run_id in query.runs:
            runs.require(tx, run_id)
        found = [metrics.read(tx, run_id, query, runs=len(query.runs)) for run_id in query.runs]
        return r.Page[r.Metrics](items=found)


@router.get("/runs/{run_id}/logs")
def run_logs(services: ServicesDep, run_id: RowId, query: Annotated[q.LogQuery, Query()]) -> r.Page[r.LogRecord]:
    """Log lines, oldest first."""
    with services.database.read() as tx:
        runs.require(tx, run_id)
        return logs.page(tx, run_id, query)


@router.get("/runs/{run_id}/steps")
def steps(services: ServicesDep, run_id: RowId, query: Annotated[q.StepQuery, Query()]) -> r.Page[StepSummary]:
    """The steps that have groups, and the states of those."""
    with services.database.read() as tx:
        runs.require(tx, run_id)
        return groups.steps(tx, run_id, query)


@router.get("/runs/{run_id}/steps/{step}")
def step_scores(
    services: ServicesDep, run_id: RowId, step: StepNumber, query: Annotated[q.StepScoresQuery, Query()]
) -> StepScores:
    """Every number of a step's groups."""
    with services.database.read() as tx:
        runs.require(tx, run_id)
        return scores.of_step(tx, run_id, step, query)


@router.get("/runs/{run_id}/distribution")
def distribution(services: ServicesDep, run_id: RowId, query: Annotated[q.DistributionQuery, Query()]) -> Distribution:
    """How rewards or advantages were distributed over steps."""
    with services.database.read() as tx:
        runs.require(tx, run_id)
        return scores.distribution(tx, run_id, query)


@router.get("/runs/{run_id}/groups")
def list_groups(services: ServicesDep, run_id: RowId, query: Annotated[q.GroupQuery, Query()]) -> r.Page[GroupSummary]:
    """Groups of a run."""
    with services.database.read() as tx:
        runs.require(tx, run_id)
        return groups.page(tx, run_id, query)


@router.get("/groups")
def groups_of_prompt(services: ServicesDep, query: Annotated[q.PromptGroupQuery, Query()]) -> r.Page[GroupSummary]:
    """Groups of one prompt in several runs."""
    with services.database.read() as tx:
        for run_id in query.runs:
            runs.require(tx, run_id)
        return groups.of_prompt(tx, query)


@router.get("/groups/{group_id}")
def get_group(services: ServicesDep, group_id: RowId) -> Group:
    """A group with its completions."""
    with services.database.read() as tx:
        return groups.get(tx, group_id)


@router.get("/runs/{run_id}/prompts")
def list_prompts(
    services: ServicesDep, run_id: RowId, query: Annotated[q.PromptQuery, Query()]
) -> r.Page[PromptSummary]:
    """Prompts of a run."""
    with services.database.read() as tx:
        runs.require(tx, run_id)
        return prompts.page(tx, run_id, query)


@router.get("/runs/{run_id}/completions")
def list_completions(
    services: ServicesDep, run_id: RowId, query: Annotated[q.CompletionQuery, Query()]
) -> r.Page[CompletionHit]:
    """Completions of a run."""
    with services.database.read() as tx:
        runs.require(tx, run_id)
        return completions.page(tx, run_id, query)


@router.get("/completions/{completion_id}/tokens")
def completion_tokens(services: ServicesDep, completion_id: RowId) -> TokenTrace:
    """The token trace of a completion."""
    with services.database.read() as tx:
        place = traces.locate(tx, completion_id)
    return tokens.read(services.settings.home, completion_id, place)
