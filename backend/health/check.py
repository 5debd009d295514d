"""Every rule, held against the facts of one run."""

from backend.contract.health import Health
from backend.health.facts import Facts
from backend.health.rule import Rule
from backend.health.rules import (
    all_rewards_zero,
    component_dominates,
    dead_groups,
    entropy_collapse,
    gradient_clipped,
    gradient_explodes,
    kl_blow_up,
    length_drift,
    lora_rate,
    loss_near_zero,
    phase_open,
    sampling_mismatch,
    skipped_updates,
    truncation,
    unscored,
    worker_lost,
    worker_silent,
)

# In the order in which a person should read what fired: what breaks a policy, then what comes of it.
RULES: tuple[Rule, ...] = (
    worker_silent.RULE,
    phase_open.RULE,
    skipped_updates.RULE,
    gradient_explodes.RULE,
    kl_blow_up.RULE,
    entropy_collapse.RULE,
    all_rewards_zero.RULE,
    dead_groups.RULE,
    truncation.RULE,
    unscored.RULE,
    length_drift.RULE,
    component_dominates.RULE,
    sampling_mismatch.RULE,
    lora_rate.RULE,
    worker_lost.RULE,
    gradient_clipped.RULE,
    loss_near_zero.RULE,
)


def check(facts: Facts) -> Health:
    """What the rules say, warnings before notes, and which of them could be checked."""
    hints = [hint for rule in RULES if (hint := rule.hint(facts)) is not None]
    hints.sort(key=lambda hint: hint.level == "note")
    return Health(items=hints, checked=[rule.checked(facts) for rule in RULES])
