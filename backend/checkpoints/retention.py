"""Which checkpoints of a run stay, by its configuration. One that goes is forgotten here first; the worker then removes its files.

So nothing is offered whose files are going; and since both take the write lock, a run that is created either names a
checkpoint before it would be forgotten, and keeps it, or is refused.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from sqlalchemy import Connection, delete, select

from backend import events
from backend.checkpoints import replays, store
from backend.contract import protocol as p
from backend.contract.base import Json
from backend.contract.config import LOOKS
from backend.contract.model import checkpoint_of
from backend.contract.records import TERMINAL
from backend.contract.stored import get
from backend.contract.training import GIB, Keep
from backend.runs.needs import loads_from, sources_in
from backend.runs.store import PRESENT
from backend.storage import history
from backend.storage.tables import attempt, checkpoint, metric, run, trunk

BEST_BY = ("eval/pass@1", "eval/reward", "eval/accuracy")
"""What the best one has most of: the first of these that was measured where a checkpoint was saved."""


class Best(NamedTuple):
    """The checkpoint with the best held-out result."""

    step: int
    metric: str
    value: float


def keep_of(config: Mapping[str, Json]) -> Keep:
    """What a stored configuration says; a sample's, and one from before there was a choice, keeps all."""
    return Keep.model_validate(get(dict(config), "budget.keep") or {})


def kept(tx: Connection, run_id: int, config: Mapping[str, Json], store_name: str) -> list[str] | None:
    """The paths of a run's checkpoints in a store; None where its worker should remove none."""
    if keep_of(config).all:
        return None
    query = select(checkpoint.c.path).where(checkpoint.c.run_id == run_id, checkpoint.c.store == store_name)
    return list(tx.execute(query.order_by(checkpoint.c.path)).scalars())


def forget(tx: Connection, run_id: int, number: int, config: Mapping[str, Json], at: datetime) -> None:
    """Forget what does not stay, and say so in the run's log. The newest stays, that in which a fork begins, and each that another run uses."""
    keep, rows = keep_of(config), store.live(tx, run_id)
    if keep.all or len(rows) < 2:
        return
    best = _best(tx, run_id) if keep.best else None
    chosen = {row["step"] for row in rows}  # by the configuration, before its bound in GiB
    if keep.last:
        multiples = {step for step in chosen if keep.every and step % keep.every == 0}
        chosen = {*sorted(chosen)[-keep.last :], *multiples, *([best.step] if best else [])}
    needed = _named(tx, run_id) | {rows[-1]["step"], history.segments(tx, run_id)[-1].first}
    sizes = {row["step"]: row["size_bytes"] for row in rows if row["step"] in needed | chosen}
    over = sum(sizes.values()) - keep.at_most_gib * GIB if keep.at_most_gib else 0
    for step in sorted(sizes.keys() - needed, key=lambda step: (best is not None and step == best.step, step)):
        if over > 0:
            over -= sizes.pop(step)
    live = {(row["attempt"], row["step"]) for row in rows if row["step"] in sizes}
    mine = checkpoint.c.run_id == run_id
    for registered in tx.execute(select(checkpoint.c.attempt, checkpoint.c.step).where(mine)).all():
        if tuple(registered) not in live:  # also what an attempt left that was cut off below it: nobody can name that
            this = (checkpoint.c.attempt == registered.attempt) & (checkpoint.c.step == registered.step)
            tx.execute(delete(checkpoint).where(mine, this))
    gone = [row["step"] for row in rows if row["step"] not in sizes]
    for level, message in _words(keep, gone, sizes, best):
        events.log(tx, run_id, number, p.LogLine(level=level, message=message), at)


def _best(tx: Connection, run_id: int) -> Best | None:
    """The newest of those with the best result; None where no checkpoint's step was evaluated."""
    saved = (checkpoint.c.run_id == metric.c.run_id) & (checkpoint.c.step == metric.c.step)
    query = (
        select(metric.c.name, metric.c.step, metric.c.value)
        .join(attempt, history.of_attempt(metric))
        .join(checkpoint, saved)
        .where(metric.c.run_id == run_id, metric.c.name.in_(BEST_BY), metric.c.value.is_not(None))
        .where(history.live_state(metric.c.step))
        .order_by(metric.c.attempt)
    )
    values = {(name, step): value for name, step, value in tx.execute(query)}  # the last attempt's
    for name in BEST_BY:
        measured = [(value, step) for (metric_name, step), value in values.items() if metric_name == name]
        if measured:
            value, step = max(measured)
            return Best(step, name, value)
    return None


def _named(tx: Connection, run_id: int) -> set[int]:
    """The steps that other runs start from, go on from or are rewarded by, whatever their state; a sample or a replay that is over needs
    none."""
    over = run.c.kind.in_(LOOKS) & run.c.status.in_(TERMINAL)
    naming = tx.execute(select(run.c.id).where(PRESENT, run.c.id != run_id, ~over, loads_from(run_id))).scalars().all()
    sources = [
        source
        for config in tx.execute(select(run.c.config).where(run.c.id.in_(naming))).scalars()
        for _, source in sources_in(config)
    ]
    named = {at[1] for source in sources if (at := checkpoint_of(source)) is not None and at[0] == run_id}
    forks = select(trunk.c.below).join(run, run.c.id == trunk.c.run_id).where(trunk.c.of_run_id == run_id, PRESENT)
    begun = (replays.start_of(tx, run_id, below) for below in tx.execute(forks.distinct()).scalars())
    return named | {one["step"] for one in begun if one is not None and one["run_id"] == run_id}


def _words(
    keep: Keep, gone: Sequence[int], sizes: Mapping[int, int], best: Best | None
) -> Iterator[tuple[Literal["info", "warning"], str]]:
    """What the run's log says of it."""
    total, bound = sum(sizes.values()) / GIB, keep.at_most_gib
    if gone:
        rules = [f"the newest {keep.last}" if keep.last else "all", f"no more than {bound:g} GiB" if bound else ""]
        rules += [f"those at multiples of {keep.every} steps" if keep.last and keep.every else ""]
        rules += [f"the best (step {best.step}, {best.metric} {best.value:.3f})" if best and best.step in sizes else ""]
        which = f"step {gone[0]}" if len(gone) == 1 else f"steps {', '.join(map(str, gone))}"
        yield "info", f"removed: checkpoints of {which}; kept ({total:.2f} GiB): {', '.join(filter(None, rules))}"
    if bound and total > bound:
        stay = ", ".join(map(str, sizes))
        text = (
            f"checkpoints take {total:.2f} GiB, more than budget.keep.at_most_gib ({bound:g}): steps {stay} stay, since "
            "the newest is never removed, nor one that another run uses"
        )
        yield "warning", text
