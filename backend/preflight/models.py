"""The models that a run can begin with: what comes along, what workers have, checkpoints of earlier runs; and their route."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fastapi import APIRouter
from sqlalchemy import Connection, func, select

from backend import workers
from backend.catalog import CARDS, TINY_ARITHMETIC
from backend.checkpoints import store as checkpoints
from backend.contract.config import LOOKS, LookConfig, RunConfig
from backend.contract.model import checkpoint_of
from backend.contract.model_choice import ModelChoice, Models, Place, StartingSettings
from backend.contract.preflight import Preflight
from backend.contract.records import Worker
from backend.contract.replay import ReplayConfig
from backend.preflight.facts import Facts, roomiest
from backend.preflight.gather import origin_of
from backend.preflight.memory import needed
from backend.preflight.preflight import PreflightRequest, parse
from backend.preflight.starting import starting_settings
from backend.runs.store import PRESENT
from backend.services import ServicesDep
from backend.storage.tables import checkpoint, run

router = APIRouter(prefix="/api/v1/models", tags=["models"])

RUNS = 30  # the newest that have a checkpoint
PLACES: Mapping[str, Place] = {"builtin": "builtin", "local": "local", "run": "checkpoint"}
MISSING: Mapping[Place, str] = {
    "builtin": "there is no such model; choose one from the list",
    "local": "no worker that is up has it below its model root",
    "checkpoint": "there is no such checkpoint; choose one from the list",
}


@dataclass(frozen=True)
class Candidate:
    """A model that a run might begin with, and the workers that can open it; its shape is that of `origin`."""

    source: str
    title: str
    workers: Sequence[Worker]
    origin: str
    note: str = ""
    usable: bool = True


@router.post("")
def list_models(services: ServicesDep, body: PreflightRequest) -> Models:
    """The models that a run of this configuration can begin with, and settings to start the chosen one with."""
    model = body.config.get("model")
    settings = model if isinstance(model, dict) else {}
    source = settings.get("source")
    # The chosen model may be what is wrong with the configuration: the others are weighed all the same.
    config = parse({**body.config, "model": {**settings, "source": TINY_ARITHMETIC}})
    with services.database.read() as tx:
        recent = workers.recent(tx, services.clock.seconds(), services.settings.lease_seconds)
        alive = [one for one in recent if one.alive]
        found = {one.source: one for one in [*_offered(alive), *_checkpoints(tx, alive)]}
        if isinstance(source, str) and source and source not in found:
            found[source] = _typed(tx, source, alive)
    weighed, facts = None if isinstance(config, Preflight) else config, Facts(workers=alive)
    chosen, of_chosen = found.get(source) if isinstance(source, str) else None, replace(facts, given=body.given)
    return Models(
        items=[_choice(one, weighed, of_chosen if one is chosen else facts) for one in found.values()],
        starting=_starting(chosen, weighed, of_chosen) if chosen is not None else [],
    )


def _offered(alive: Sequence[Worker]) -> Iterator[Candidate]:
    """What comes along, and what lies on the workers' disks: below model roots first, then from the Hub."""
    for card in CARDS:
        yield Candidate(card.source, card.title, alive, card.source)
    offered = {one.source: one for worker in alive for one in worker.models}
    for one in sorted(
        offered.values(), key=lambda found: (found.problem is not None, _place(found.source) == "hub", found.source)
    ):
        # any worker can download from the Hub; what lies below a model root is there for that worker alone
        hub = _place(one.source) == "hub"
        have = [worker for worker in alive if hub or one.source in {model.source for model in worker.models}]
        title = one.source if hub else one.source.removeprefix("local:")
        yield Candidate(one.source, title, have, one.source, one.problem or "", usable=one.problem is None)


def _checkpoints(tx: Connection, alive: Sequence[Worker]) -> Iterator[Candidate]:
    """The newest checkpoint of each of the newest runs that trained a policy."""
    kept = (
        select(run.c.id, run.c.name)
        .where(PRESENT, run.c.kind.not_in({"reward_model", *LOOKS}))
        .where(select(func.count()).where(checkpoint.c.run_id == run.c.id).scalar_subquery() > 0)
        .order_by(run.c.id.desc())
        .limit(RUNS)
    )
    for run_id, name in tx.execute(kept).all():
        for row in checkpoints.live(tx, run_id)[-1:]:
            yield _checkpoint(tx, f"run:{run_id}@{row['step']}", f"{name}, step {row['step']}", row["store"], alive)


def _checkpoint(tx: Connection, source: str, title: str, store: str, alive: Sequence[Worker]) -> Candidate:
    reach = [worker for worker in alive if worker.store == store]
    note = "" if reach else "no worker that is up reaches the store in which it lies"
    return Candidate(source, title, reach, origin_of(tx, source), note)


def _typed(tx: Connection, source: str, alive: Sequence[Worker]) -> Candidate:
    """A model that nobody offers: an older checkpoint, one of the Hub, or a mistake."""
    named, place = checkpoint_of(source), _place(source)
    row = checkpoints.live_at(tx, *named) if named else None
    if row is not None:
        name = tx.execute(select(run.c.name).where(run.c.id == row["run_id"])).scalar_one()
        return _checkpoint(tx, source, f"{name}, step {row['step']}", row["store"], alive)
    if place == "hub":
        return Candidate(source, source, alive, source)
    return Candidate(source, source, [], source, MISSING[place], usable=False)


def _place(source: str) -> Place:
    return PLACES.get(source.partition(":")[0], "hub") if ":" in source else "hub"


def _choice(one: Candidate, config: RunConfig | None, facts: Facts) -> ModelChoice:
    """With what the configuration needs on the roomiest of its workers; without any, on a CPU."""
    shape = facts.shape_of(one.origin)
    sizes = {model.source: model.parameters for worker in facts.workers for model in worker.models}
    needs: int | None = None
    fitting: list[bool] = []
    if shape is not None and config is not None and not isinstance(config, ReplayConfig) and one.usable:
        needs = sum(needed(config, shape, roomiest(one.workers)).values())
        rooms = [(worker, worker.memory_bytes) for worker in one.workers if worker.memory_bytes is not None]
        fitting = [sum(needed(config, shape, worker).values()) <= room for worker, room in rooms]
    return ModelChoice(
        source=one.source,
        place=_place(one.source),
        title=one.title,
        parameters=sizes.get(one.origin) or (shape.parameters if shape else None),
        memory_bytes=needs,
        workers=len(one.workers),
        fits=fitting.count(True),
        too_small=fitting.count(False),
        note=one.note or ("" if shape else _why_unknown(one.origin, known=one.origin in sizes)),
        usable=one.usable,
    )


def _why_unknown(origin: str, *, known: bool) -> str:
    if known:
        return "no memory estimate: its architecture is not counted here"
    if _place(origin) == "hub":
        return "size unknown until a worker has downloaded its config.json, or you give it"
    return f"size unknown: no worker that is up has {origin}"


def _starting(one: Candidate, config: RunConfig | None, facts: Facts) -> list[StartingSettings]:
    shape = facts.shape_of(one.origin)
    if shape is None or config is None or isinstance(config, LookConfig) or not one.usable:
        return []
    return starting_settings(config, shape, roomiest(one.workers))
