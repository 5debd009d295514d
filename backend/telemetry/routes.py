"""Routes of what training brought."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from backend.contract import records as r
from backend.contract.groups import Group, GroupState, GroupSummary, StepSummary, TokenTrace
from backend.errors import Invalid
from backend.field_errors import FieldError
from backend.parameters import Cursor, Limit, RowId, position
from backend.runs import store as runs
from backend.services import ServicesDep
from backend.telemetry import groups, logs, metrics, tokens, traces

router = APIRouter(prefix="/api/v1", tags=["telemetry"])

MAX_STEPS = 10_000
MAX_RUNS = 20

Step = Annotated[int | None, Query(ge=-1, le=2**63 - 1)]
Names = Annotated[str | None, Query(max_length=10_000, description="Separated by commas; all where none is given.")]
MaxPoints = Annotated[int | None, Query(ge=4, le=100_000)]
Sort = Literal["index", "step", "reward_mean", "reward_std", "-index", "-step", "-reward_mean", "-reward_std"]


def _split(names: str | None) -> list[str]:
    return [name for name in (names or "").split(",") if name]


@router.get("/runs/{run_id}/metrics")
def run_metrics(
    services: ServicesDep,
    run_id: RowId,
    names: Names = None,
    after_step: Step = None,
    from_step: Step = None,
    to_step: Step = None,
    max_points: MaxPoints = None,
) -> r.Metrics:
    """Live series of a run."""
    window = metrics.Window(_split(names), after_step, from_step, to_step, max_points)
    with services.database.read() as tx:
        runs.require(tx, run_id)
        return metrics.read(tx, run_id, window)


@router.get("/metrics")
def compare_metrics(
    services: ServicesDep,
    runs_: Annotated[str, Query(alias="runs", max_length=1000, description="Run numbers, separated by commas.")],
    names: Names = None,
    from_step: Step = None,
    to_step: Step = None,
    max_points: MaxPoints = None,
) -> r.Page[r.Metrics]:
    """The same series of several runs."""
    window = metrics.Window(_split(names), None, from_step, to_step, max_points)
    wanted = _run_ids(runs_)
    with services.database.read() as tx:
        for run_id in wanted:
            runs.require(tx, run_id)
        return r.Page[r.Metrics](items=[metrics.read(tx, run_id, window) for run_id in wanted])


def _run_ids(text: str) -> list[int]:
    entries = list(dict.fromkeys(text.split(",")))
    if not all(entry.isascii() and entry.isdigit() and len(entry) <= 18 for entry in entries):
        raise Invalid(FieldError("runs", "must be run numbers, separated by commas"))
    if len(entries) > MAX_RUNS:
        raise Invalid(FieldError("runs", f"must name at most {MAX_RUNS} runs (got {len(entries)})"))
    return [int(entry) for entry in entries]


@router.get("/runs/{run_id}/steps")
def steps(services: ServicesDep, run_id: RowId, after_step: Step = None) -> r.Page[StepSummary]:
    """The steps that have groups, and the states of those."""
    with services.database.read() as tx:
        runs.require(tx, run_id)
        return groups.steps(tx, run_id, after_step, MAX_STEPS)


@router.get("/runs/{run_id}/groups")
def list_groups(
    services: ServicesDep,
    run_id: RowId,
    step: Step = None,
    prompt_id: Annotated[str | None, Query(max_length=200)] = None,
    state: GroupState | None = None,
    search: Annotated[str | None, Query(max_length=1000)] = None,
    sort: Sort = "step",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> r.Page[GroupSummary]:
    """Groups of a run."""
    wanted = groups.Filter(step, prompt_id, state, search, sort)
    with services.database.read() as tx:
        runs.require(tx, run_id)
        return groups.page(tx, run_id, wanted, limit, position(cursor) or 0)


@router.get("/groups/{group_id}")
def get_group(services: ServicesDep, group_id: RowId) -> Group:
    """A group with its completions."""
    with services.database.read() as tx:
        return groups.get(tx, group_id)


@router.get("/completions/{completion_id}/tokens")
def completion_tokens(services: ServicesDep, completion_id: RowId) -> TokenTrace:
    """The token trace of a completion."""
    with services.database.read() as tx:
        place = traces.locate(tx, completion_id)
    return tokens.read(services.settings.home, completion_id, place)


@router.get("/runs/{run_id}/logs")
def run_logs(
    services: ServicesDep,
    run_id: RowId,
    after_id: Annotated[int, Query(ge=0, le=2**63 - 1)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 500,
) -> r.Page[r.LogRecord]:
    """Log lines, oldest first."""
    with services.database.read() as tx:
        runs.require(tx, run_id)
        return logs.page(tx, run_id, after_id, limit)
