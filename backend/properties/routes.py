"""The route of what the reward pays for. The window is read in one transaction, and looked at outside of it."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
from anyio.to_thread import run_sync
from fastapi import APIRouter, Query

from backend.contract.base import Json
from backend.contract.properties import PaidFor
from backend.contract.queries import PropertyQuery
from backend.health.facts import correctness
from backend.people.agreement import by_group
from backend.people.pairs import judgements_of
from backend.properties import window
from backend.properties.association import LEAST
from backend.properties.hints import Judged, hints
from backend.properties.study import effects, spreads, study
from backend.properties.table import table
from backend.properties.window import Window
from backend.runs import store as runs
from backend.services import RowId, Services, ServicesDep

router = APIRouter(prefix="/api/v1", tags=["properties"])


@router.get("/runs/{run_id}/properties")
async def run_properties(services: ServicesDep, run_id: RowId, query: Annotated[PropertyQuery, Query()]) -> PaidFor:
    """Which properties of completions go with the reward, within groups. One request after the other: each takes a processor."""
    return await run_sync(_answer, services, run_id, query, limiter=services.studies)


def _answer(services: Services, run_id: int, query: PropertyQuery) -> PaidFor:
    with services.database.read() as tx:
        config: Mapping[str, Json] = runs.row_of(tx, run_id)["config"]
        seen = window.read(tx, run_id, query)
        judgements = judgements_of(tx, run_id) if query.reward is None else None
    judged = [
        Judged(group.step, tally.agreed / decided)
        for group, tally in (by_group(judgements) if judgements is not None else [])
        if (decided := tally.agreed + tally.disagreed)
    ]
    return page(run_id, seen, query.reward, correctness(config), judged)


def page(run_id: int, seen: Window, reward: str | None, truths: list[str], judged: Sequence[Judged] = ()) -> PaidFor:
    """The whole answer; `truths` are the components that compare answers."""
    studied = study(seen, table(seen), reward)
    steps = [group.step for group in seen.groups.values()]
    phrases = spreads(studied)
    known = [name for name in seen.components() if name in truths or name in seen.measured_only()]
    return PaidFor(
        run_id=run_id,
        reward=reward,
        rewards=seen.components(),
        from_step=min(steps, default=None),
        to_step=max(steps, default=None),
        all_groups=seen.all_groups,
        groups=len(seen.groups),
        differing=len(np.unique(studied.table.groups_N[studied.kept_N])),
        completions=len(seen.completions),
        unscored=int(np.isnan(studied.rewards_N).sum()),
        shortened=seen.shortened,
        cluster=studied.cluster,
        clusters=len(np.unique(studied.clusters_N)),
        needed=LEAST,
        looked_at=int(studied.association.tested_K.sum()),
        properties=effects(studied),
        phrases=phrases,
        hints=hints(studied, phrases, known, judged) if reward is None else [],
    )
