"""Routes of what a run measured: metrics, logs, steps, groups, prompts and completions, and the stream of its events.

The stream is server-sent events with numbers, so that a reader who was cut off goes on from there.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Header, Query
from fastapi.sse import EventSourceResponse, ServerSentEvent
from sqlalchemy import Connection, RowMapping

from backend import events
from backend.contract import queries as q
from backend.contract import records as r
from backend.contract.groups import Group, GroupSummary, StepSummary, TokenTrace
from backend.contract.inspection import (
    CommonPrompt,
    CompletionHit,
    Difference,
    Distribution,
    Lineage,
    PromptSummary,
    StepScores,
)
from backend.contract.pairs import PairRecord
from backend.contract.replay import Replayed
from backend.runs import store as runs
from backend.services import RowId, Services, ServicesDep, StepNumber
from backend.telemetry import groups, inspection, lineage, metrics, pairs, replayed, traces

LastEventId = Annotated[int | None, Header(ge=0, le=2**63 - 1)]

router = APIRouter(prefix="/api/v1", tags=["telemetry"])


@contextmanager
def _reading(services: Services, *run_ids: int) -> Iterator[Connection]:
    """A transaction that reads these runs. Raises NotFound."""
    with services.database.read() as tx:
        for run_id in run_ids:
            runs.require(tx, run_id)
        yield tx


@router.get("/runs/{run_id}/metrics")
def run_metrics(services: ServicesDep, run_id: RowId, query: Annotated[q.MetricQuery, Query()]) -> r.Metrics:
    """Live series of a run."""
    with _reading(services, run_id) as tx:
        return metrics.read(tx, run_id, query)


@router.get("/metrics")
def compare_metrics(services: ServicesDep, query: Annotated[q.ComparedMetricQuery, Query()]) -> r.Page[r.Metrics]:
    """The same series of several runs."""
    with _reading(services, *query.runs) as tx:
        found = [metrics.read(tx, run_id, query, runs=len(query.runs)) for run_id in query.runs]
        return r.Page[r.Metrics](items=found)


@router.get("/runs/{run_id}/logs")
def run_logs(services: ServicesDep, run_id: RowId, query: Annotated[q.LogQuery, Query()]) -> r.Page[r.LogRecord]:
    """Log lines, oldest first."""
    with _reading(services, run_id) as tx:
        return events.log_page(tx, run_id, query)


@router.get("/runs/{run_id}/steps")
def steps(services: ServicesDep, run_id: RowId, query: Annotated[q.StepQuery, Query()]) -> r.Page[StepSummary]:
    """The steps that have groups, and the states of those."""
    with _reading(services, run_id) as tx:
        return groups.steps(tx, run_id, query)


@router.get("/runs/{run_id}/steps/{step}")
def step_scores(
    services: ServicesDep, run_id: RowId, step: StepNumber, query: Annotated[q.StepScoresQuery, Query()]
) -> StepScores:
    """Every number of a step's groups."""
    with _reading(services, run_id) as tx:
        return inspection.step_scores(tx, run_id, step, query)


@router.get("/runs/{run_id}/replayed")
def get_replayed(services: ServicesDep, run_id: RowId) -> Replayed:
    """What a replay found of its step."""
    with _reading(services, run_id) as tx:
        return replayed.read(tx, run_id)


@router.get("/runs/{run_id}/distribution")
def distribution(services: ServicesDep, run_id: RowId, query: Annotated[q.DistributionQuery, Query()]) -> Distribution:
    """How rewards or advantages were distributed over steps."""
    with _reading(services, run_id) as tx:
        return inspection.distribution(tx, run_id, query)


@router.get("/runs/{run_id}/groups")
def list_groups(services: ServicesDep, run_id: RowId, query: Annotated[q.GroupQuery, Query()]) -> r.Page[GroupSummary]:
    """Groups of a run."""
    with _reading(services, run_id) as tx:
        return groups.page(tx, run_id, query)


@router.get("/groups")
def groups_of_prompt(services: ServicesDep, query: Annotated[q.PromptGroupQuery, Query()]) -> r.Page[GroupSummary]:
    """Groups of one prompt in several runs."""
    with _reading(services, *query.runs) as tx:
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
    with _reading(services, run_id) as tx:
        return inspection.prompts(tx, run_id, query)


@router.get("/prompts")
def common_prompts(services: ServicesDep, query: Annotated[q.CommonPromptQuery, Query()]) -> r.Page[CommonPrompt]:
    """Prompts that several runs have drawn, by their texts."""
    with _reading(services, *query.runs) as tx:
        return inspection.common(tx, query)


@router.get("/lineage")
def run_lineage(services: ServicesDep, query: Annotated[q.LineageQuery, Query()]) -> r.Page[Lineage]:
    """Of what the histories of runs are made: a fork's first steps are another run's."""
    with _reading(services, *query.runs) as tx:
        return r.Page[Lineage](items=[lineage.lineage(tx, run_id) for run_id in query.runs])


@router.get("/runs/{run_id}/difference/{other_id}")
def run_difference(services: ServicesDep, run_id: RowId, other_id: RowId) -> Difference:
    """From where on two runs differ."""
    with _reading(services, run_id, other_id) as tx:
        return lineage.difference(tx, run_id, other_id)


@router.get("/runs/{run_id}/pairs")
def list_pairs(services: ServicesDep, run_id: RowId, query: Annotated[q.PairQuery, Query()]) -> r.Page[PairRecord]:
    """Preference pairs that a run was trained on."""
    with _reading(services, run_id) as tx:
        return pairs.page(tx, run_id, query)


@router.get("/runs/{run_id}/completions")
def list_completions(
    services: ServicesDep, run_id: RowId, query: Annotated[q.CompletionQuery, Query()]
) -> r.Page[CompletionHit]:
    """Completions of a run."""
    with _reading(services, run_id) as tx:
        return groups.completions(tx, run_id, query)


@router.get("/completions/{completion_id}/tokens")
def completion_tokens(services: ServicesDep, completion_id: RowId) -> TokenTrace:
    """The token trace of a completion."""
    with services.database.read() as tx:
        place = traces.locate(tx, completion_id)
    return traces.read(services.settings.home, completion_id, place)


async def _place(services: ServicesDep) -> AsyncIterator[None]:
    """Held as long as the stream is open. Raises TooManyStreams."""
    with services.broadcast.place():
        yield


def _newest(services: ServicesDep, run_id: RowId) -> int:
    """The number of the run's newest event. Raises NotFound before the stream begins."""
    with _reading(services, run_id) as tx:
        return events.newest(tx, run_id)


@router.get("/runs/{run_id}/events", response_class=EventSourceResponse, dependencies=[Depends(_place)])
async def run_events(
    services: ServicesDep, run_id: RowId, newest: Annotated[int, Depends(_newest)], last_event_id: LastEventId = None
) -> AsyncIterator[ServerSentEvent]:
    """Events from now on; with Last-Event-ID also those after it (0: all of them)."""
    last = newest if last_event_id is None else last_event_id
    with services.broadcast.listen(run_id) as bell:
        yield ServerSentEvent(comment="listening", retry=2000)
        while True:
            bell.clear()
            found = await run_sync(_after, services, run_id, last, limiter=services.broadcast.readers)
            if found is None:
                return
            for row in found:
                last = row["id"]
                yield ServerSentEvent(id=str(last), event=row["kind"], data=row["payload"])
            if not found:
                await bell.wait()


def _after(services: Services, run_id: int, last: int) -> Sequence[RowMapping] | None:
    """The next events; None if the run was deleted."""
    with services.database.read() as tx:
        return events.after(tx, run_id, last) or (None if not runs.is_present(tx, run_id) else [])
