"""Sampling and training disagree about the same tokens."""

from backend.health.facts import RECENT, Facts
from backend.health.rule import Finding, Rule, evidence
from backend.health.stored import text
from backend.health.words import figure, span

NATS = 0.05


def check(facts: Facts) -> Finding | None:
    """Rounding is far below; more means that the policy that is trained is not the one that was sampled."""
    gap = facts.recent("sampling_logprob_diff")
    mean = gap.mean
    if mean is None or mean < NATS:
        return None
    engine = text(facts.config, "sampling.engine") or "native"
    return Finding(
        measured=f"Over {span(min(gap.values), max(gap.values))} the log-probs of sampling ({engine} engine) and of training differed by "
        f"{figure(mean)} nats per token on average.",
        advice="The update treats tokens as its own that another policy drew. Check that the engine has the same weights, dtype, "
        "tokenizer and temperature; sampling.engine: native samples with the model that is trained.",
        numbers={"mean_difference": mean},
        evidence=evidence(gap.values, "sampling_logprob_diff", step=gap.peak),
    )


RULE = Rule(
    code="sampling_mismatch",
    title="Sampling and training disagree",
    words=f"sampling_logprob_diff is at least {NATS:g} nats per token on average over the last {RECENT} steps",
    check=check,
    metrics=("sampling_logprob_diff",),
    steps=3,
)
