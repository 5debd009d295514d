"""The SQL of health: windows of a run's last and first steps, through indexes, however long it is."""

from sqlalchemy import Connection, RowMapping, func, select

from backend.clock import Terms
from backend.contract.queries import MetricQuery
from backend.contract.records import PHASES
from backend.health.facts import HISTORY, RECENT, Facts, GroupFact, OpenPhase, Stretch, weights
from backend.runs import store as runs
from backend.storage import history
from backend.storage.tables import attempt, prompt_group
from backend.telemetry import metrics

COMPARED_WITH_THE_START = ("reward", "reward_std", "entropy", "completions/mean_length", "grad_norm")
WATCHED = (
    *COMPARED_WITH_THE_START,
    "frac_reward_zero_std",
    "frac_unscored",
    "completions/clipped_ratio",
    "kl",
    "loss",
    "sampling_logprob_diff",
    "step_time",
    *(f"time/{phase}" for phase in PHASES),
)


def facts_of(tx: Connection, run_id: int, terms: Terms) -> Facts:
    """All that rules look at. Raises NotFound."""
    row = runs.row_of(tx, run_id)
    step, running = row["step"], row["status"] == "running"
    heard = row["lease_until"] - terms.ttl if running else terms.now  # each word from the worker renews the lease
    components = (f"rewards/{name}/{what}" for name in weights(row["config"]) for what in ("mean", "std"))
    return Facts(
        config=row["config"],
        status=row["status"],
        step=step,
        history=_series(tx, run_id, MetricQuery(names=(*WATCHED, *components), from_step=max(0, step - HISTORY))),
        start=_series(tx, run_id, MetricQuery(names=COMPARED_WITH_THE_START, to_step=RECENT - 1)),
        groups=_groups(tx, run_id, step),
        phase=_phase(row, heard),
        silence=max(0.0, terms.now - heard) if running else None,
        lease_seconds=terms.ttl,
        lost_attempts=_lost(tx, row),
    )


def _series(tx: Connection, run_id: int, query: MetricQuery) -> dict[str, Stretch]:
    found = metrics.read(tx, run_id, query).series
    return {name: Stretch(dict(zip(series.step, series.value, strict=True))) for name, series in found.items()}


def _groups(tx: Connection, run_id: int, step: int) -> list[GroupFact]:
    query = (
        select(prompt_group.c.step, prompt_group.c.state, prompt_group.c.reward_mean)
        .join(attempt, history.of_attempt(prompt_group))
        .where(prompt_group.c.run_id == run_id, history.live(prompt_group.c.step))
        .where(prompt_group.c.step >= step - RECENT)
    )
    return [GroupFact(*row) for row in tx.execute(query)]


def _phase(row: RowMapping, heard: float) -> OpenPhase | None:
    """What its worker said when it was last heard of; a silent one says nothing of what it does since."""
    if row["phase"] is None or row["phase_since"] is None:
        return None
    return OpenPhase(row["phase"], max(0.0, heard - row["phase_since"]))


def _lost(tx: Connection, row: RowMapping) -> int:
    """Attempts that nobody ended; the current one of a running run has not ended yet."""
    unended = select(func.count()).where(attempt.c.run_id == row["id"], attempt.c.outcome.is_(None))
    return int(tx.execute(unended).scalar_one()) - int(row["status"] == "running")
