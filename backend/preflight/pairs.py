"""Preflight of runs on preference pairs: how many pairs there will be, and how often each is seen."""

from collections.abc import Iterator

from backend.catalog.models import SHAPES
from backend.contract.preference import DpoConfig, RewardModelConfig, SampledPairs
from backend.contract.preflight import Message
from backend.preflight.facts import Facts
from backend.preflight.forecast import dead_share

MANY_TIMES = 10  # a pair seen more often than this is learned by heart


def training_pairs(config: RewardModelConfig | DpoConfig, facts: Facts) -> int | None:
    """About how many pairs there are to train on, without a success rate at most; None where nobody knows before they are read.

    Too many where prompts differ: p^G + (1 − p)^G at the mean rate is less than the mean of theirs (Jensen).
    """
    pairs = config.pairs
    if isinstance(pairs, SampledPairs):
        dead = dead_share(facts.success.rate, pairs.group_size) if facts.success else 0.0
        return round(pairs.prompts * (1 - dead))
    return facts.training_items


def hints(config: RewardModelConfig | DpoConfig, facts: Facts, pairs: int | None) -> Iterator[Message]:
    """Completions that do not fit, and pairs that are seen too often."""
    shape = SHAPES.get(facts.origin or config.model.source)
    if shape is not None and isinstance(config.pairs, SampledPairs):
        asked = config.pairs.decoding.max_new_tokens
        if asked >= shape.context:
            text = f"{asked} new tokens and a prompt exceed the model's context of {shape.context} tokens"
            fix = {"pairs.decoding.max_new_tokens": shape.context // 2}
            yield Message(level="error", field="pairs.decoding.max_new_tokens", text=text, fix=dict(fix))
    times = config.budget.steps * config.budget.pairs_per_step / pairs if pairs else 0
    if times > MANY_TIMES:
        text = f"each of about {pairs:,} pairs is seen about {times:.0f} times and may be learned by heart; watch eval/accuracy"
        yield Message(level="warning", field="budget.steps", text=text)
