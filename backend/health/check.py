"""Every rule, checked against the facts of one run: windows of its last and first steps, read through indexes, however long it is."""

from collections.abc import Mapping
from dataclasses import replace

from fastapi import APIRouter
from sqlalchemy import Connection, func, select

from backend.clock import Terms
from backend.contract.health import Health
from backend.contract.protocol import EVALUATION
from backend.contract.queries import GroupQuery, MetricQuery
from backend.contract.records import PHASES
from backend.health import component, machine, policy, rewards, signal
from backend.health.facts import HISTORY, NOTHING, RECENT, ExampleGroup, Facts, GroupFact, OpenPhase, Stretch, functions
from backend.health.rule import Rule
from backend.runs import store as runs
from backend.services import RowId, ServicesDep
from backend.storage import history
from backend.storage.tables import METRIC_WIDTHS, attempt, prompt_group
from backend.telemetry import groups, metrics, stretches

router = APIRouter(prefix="/api/v1", tags=["health"])

# In the order in which a person should read what fired: what never worked, what breaks a policy, then its consequences.
RULES: tuple[Rule, ...] = (
    component.component_at_zero,
    rewards.everything_masked,
    machine.worker_silent,
    machine.phase_open,
    policy.skipped_updates,
    policy.not_finite,
    policy.gradient_explodes,
    policy.kl_blow_up,
    policy.entropy_collapse,
    rewards.all_rewards_zero,
    signal.truth_falls,
    rewards.dead_groups,
    rewards.truncation,
    rewards.unscored,
    rewards.length_drift,
    component.component_dominates,
    signal.near_ties,
    signal.flat_reward,
    machine.sampling_mismatch,
    policy.lora_rate,
    machine.worker_lost,
    policy.gradient_clipped,
    policy.loss_near_zero,
)

COMPARED_WITH_THE_START = ("reward", "reward_std", "entropy", "completions/mean_length", "grad_norm")
HELD_OUT = "eval/pass@1"
QUOTED, TRAINED = 64, ("live", "zero_variance")  # completions of an example, and the states of its group
MOST = 64  # metrics of which values that are not finite are looked for
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
    components = tuple(f"rewards/{name}/{what}" for name in functions(row["config"]) for what in ("mean", "std"))
    recent = (
        select(prompt_group.c.step, prompt_group.c.state, prompt_group.c.reward_mean, prompt_group.c.reward_std)
        .join(attempt, history.of_attempt(prompt_group))
        .where(prompt_group.c.run_id == run_id, history.live(prompt_group.c.step))
        .where(prompt_group.c.step >= step - RECENT)
    )
    unended = select(func.count()).where(attempt.c.run_id == run_id, attempt.c.outcome.is_(None))
    phase = None  # what its worker said when it was last heard of; a silent one says nothing of what it does since
    if row["phase"] is not None and row["phase_since"] is not None:
        phase = OpenPhase(row["phase"], max(0.0, heard - row["phase_since"]))
    facts = Facts(
        config=row["config"],
        status=row["status"],
        step=step,
        history=_series(tx, run_id, MetricQuery(names=(*WATCHED, *components), from_step=max(0, step - HISTORY))),
        start=_series(tx, run_id, MetricQuery(names=(*COMPARED_WITH_THE_START, *components), to_step=RECENT - 1)),
        whole=_series(tx, run_id, MetricQuery(names=components, width=max(METRIC_WIDTHS))) if components else {},
        evaluations=_series(tx, run_id, MetricQuery(names=(HELD_OUT,), from_step=0)).get(HELD_OUT, NOTHING),
        groups=[GroupFact(*group) for group in tx.execute(recent)],
        phase=phase,
        silence=max(0.0, terms.now - heard) if running else None,
        lease_seconds=terms.ttl,
        lost_attempts=int(tx.execute(unended).scalar_one()) - running,  # the current one has not ended yet
        not_finite=_not_finite(tx, run_id, row["summary"], max(0, step - HISTORY)),
    )
    return replace(facts, example=example(tx, run_id, facts))


def example(tx: Connection, run_id: int, facts: Facts) -> ExampleGroup | None:
    """Of the newest step the group with the highest reward; None unless a reward is always 0."""
    zero, trained = facts.always_zero(), [one for one in facts.groups if one.state in TRAINED]
    if not zero or not trained:
        return None
    best = max(trained, key=lambda one: (one.step, one.reward_mean or 0.0))
    query = GroupQuery(step=best.step, state=best.state, sort="-reward_mean", limit=1)
    group = groups.get(tx, groups.page(tx, run_id, query).items[0].id)
    scored = [one for one in group.completions[:QUOTED] if any((it.name, it.raw) == (zero[0], 0) for it in one.rewards)]
    cut = sum(one.finish_reason == "length" for one in scored)
    return ExampleGroup(best.step, group.prompt_text, group.answer, [one.text for one in scored], cut)


def _series(tx: Connection, run_id: int, query: MetricQuery) -> dict[str, Stretch]:
    found = metrics.read(tx, run_id, query).series
    return {name: Stretch(dict(zip(series.step, series.value, strict=True))) for name, series in found.items()}


def _not_finite(tx: Connection, run_id: int, latest: Mapping[str, float | None], first: int) -> dict[str, list[int]]:
    """By metric, the steps from `first` on at which it was not finite. Roll-ups say of which metrics."""
    width = max(METRIC_WIDTHS)
    rolled_up = stretches.read(tx, run_id, latest.keys(), width, first - first % width, history.LAST)
    some = [name for name, parts in rolled_up.items() if any(stretches.Stretch(*part).missing for part in parts)]
    some += [name for name, value in latest.items() if value is None and name.startswith(EVALUATION)]
    found = _series(tx, run_id, MetricQuery(names=tuple(some[:MOST]), from_step=first)) if some else {}
    return {name: stretch.missing for name, stretch in found.items() if stretch.missing}


def check(facts: Facts) -> Health:
    """The hints of all rules, warnings before notes, and which of the rules could be checked."""
    hints = [hint for rule in RULES if (hint := rule.hint(facts)) is not None]
    hints.sort(key=lambda hint: hint.level == "note")
    return Health(items=hints, checked=[rule.checked(facts) for rule in RULES])


@router.get("/runs/{run_id}/health")
def run_health(services: ServicesDep, run_id: RowId) -> Health:
    """What looks unusual in a run, each with its rule, its numbers and where to look."""
    with services.database.read() as tx:
        facts = facts_of(tx, run_id, services.terms())
    return check(facts)
