"""Every rule, checked against the facts of one run, and the route that asks for it."""

from fastapi import APIRouter

from backend.contract.health import Health
from backend.health import machine, policy, rewards
from backend.health.facts import Facts
from backend.health.gather import facts_of
from backend.health.rule import Rule
from backend.services import RowId, ServicesDep

router = APIRouter(prefix="/api/v1", tags=["health"])

# In the order in which a person should read what fired: what breaks a policy, then its consequences.
RULES: tuple[Rule, ...] = (
    machine.worker_silent,
    machine.phase_open,
    policy.skipped_updates,
    policy.gradient_explodes,
    policy.kl_blow_up,
    policy.entropy_collapse,
    rewards.all_rewards_zero,
    rewards.dead_groups,
    rewards.truncation,
    rewards.unscored,
    rewards.length_drift,
    rewards.component_dominates,
    machine.sampling_mismatch,
    policy.lora_rate,
    machine.worker_lost,
    policy.gradient_clipped,
    policy.loss_near_zero,
)


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
