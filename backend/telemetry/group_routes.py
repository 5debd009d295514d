"""Routes of groups and completions: listed, searched, counted, read one by one."""

from typing import Annotated

from fastapi import APIRouter, Query

from backend.contract import records as r
from backend.contract.base import CleanText
from backend.contract.groups import Group, GroupState, GroupSummary, StepSummary, TokenTrace
from backend.contract.inspection import CompletionHit, Distribution, PromptSummary, StepScores
from backend.parameters import Cursor, Limit, RowId, RunIds, Step, StepNumber, position, run_ids
from backend.runs import store as runs
from backend.services import ServicesDep
from backend.telemetry import completions, groups, prompts, scores, tokens, traces

router = APIRouter(prefix="/api/v1", tags=["groups"])

MAX_STEPS = 10_000

PromptId = Annotated[CleanText, Query(max_length=200)]
Search = Annotated[CleanText | None, Query(max_length=1000, description="A part of a text, literally.")]
Several = Annotated[int, Query(ge=1, le=100)]


class CompletionQuery(completions.Filter):
    """The parameters of a list of completions."""

    limit: Limit = 50
    cursor: Cursor = None


@router.get("/runs/{run_id}/steps")
def steps(services: ServicesDep, run_id: RowId, after_step: Step = None) -> r.Page[StepSummary]:
    """The steps that have groups, and the states of those."""
    with services.database.read() as tx:
        runs.require(tx, run_id)
        return groups.steps(tx, run_id, after_step, MAX_STEPS)


@router.get("/runs/{run_id}/steps/{step}")
def step_scores(
    services: ServicesDep,
    run_id: RowId,
    step: StepNumber,
    limit: Annotated[int, Query(ge=1, le=1000)] = 500,
    cursor: Cursor = None,
) -> StepScores:
    """Every number of a step's groups."""
    with services.database.read() as tx:
        runs.require(tx, run_id)
        return scores.of_step(tx, run_id, step, limit, position(cursor) or 0)


@router.get("/runs/{run_id}/distribution")
def distribution(
    services: ServicesDep,
    run_id: RowId,
    value: scores.Value,
    from_step: Step = None,
    to_step: Step = None,
    steps: Several = 40,
    bins: Several = 30,
) -> Distribution:
    """How rewards or advantages were distributed over steps."""
    with services.database.read() as tx:
        runs.require(tx, run_id)
        return scores.distribution(tx, run_id, value, from_step or 0, to_step, steps, bins)


@router.get("/runs/{run_id}/groups")
def list_groups(
    services: ServicesDep,
    run_id: RowId,
    step: Step = None,
    prompt_id: PromptId | None = None,
    state: GroupState | None = None,
    search: Search = None,
    bookmarked: bool | None = None,
    sort: groups.Sort = "step",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> r.Page[GroupSummary]:
    """Groups of a run."""
    wanted = groups.Filter(step, prompt_id, state, search, bookmarked, sort)
    with services.database.read() as tx:
        runs.require(tx, run_id)
        return groups.page(tx, run_id, wanted, limit, position(cursor) or 0)


@router.get("/groups")
def groups_of_prompt(
    services: ServicesDep, prompt_id: PromptId, runs_: RunIds, limit: Limit = 50, cursor: Cursor = None
) -> r.Page[GroupSummary]:
    """Groups of one prompt in several runs."""
    wanted = run_ids(runs_)
    with services.database.read() as tx:
        for run_id in wanted:
            runs.require(tx, run_id)
        return groups.of_prompt(tx, prompt_id, wanted, limit, position(cursor) or 0)


@router.get("/groups/{group_id}")
def get_group(services: ServicesDep, group_id: RowId) -> Group:
    """A group with its completions."""
    with services.database.read() as tx:
        return groups.get(tx, group_id)


@router.get("/runs/{run_id}/prompts")
def list_prompts(
    services: ServicesDep,
    run_id: RowId,
    search: Search = None,
    sort: prompts.Sort = "first_step",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> r.Page[PromptSummary]:
    """Prompts of a run."""
    with services.database.read() as tx:
        runs.require(tx, run_id)
        return prompts.page(tx, run_id, search, sort, limit, position(cursor) or 0)


@router.get("/runs/{run_id}/completions")
def list_completions(
    services: ServicesDep, run_id: RowId, wanted: Annotated[CompletionQuery, Query()]
) -> r.Page[CompletionHit]:
    """Completions of a run."""
    with services.database.read() as tx:
        runs.require(tx, run_id)
        return completions.page(tx, run_id, wanted, wanted.limit, position(wanted.cursor) or 0)


@router.get("/completions/{completion_id}/tokens")
def completion_tokens(services: ServicesDep, completion_id: RowId) -> TokenTrace:
    """The token trace of a completion."""
    with services.database.read() as tx:
        place = traces.locate(tx, completion_id)
    return tokens.read(services.settings.home, completion_id, place)
