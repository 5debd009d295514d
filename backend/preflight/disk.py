"""What a run's checkpoints and token traces will take of the disk, against what is free."""

from collections.abc import Iterator

from backend.catalog.models import SHAPES, ModelShape
from backend.contract.base import Json
from backend.contract.config import TrainingConfig
from backend.contract.grpo import GrpoConfig
from backend.contract.preflight import Message
from backend.contract.training import ADAMW_STATES, FLOAT32, GIB
from backend.preflight.facts import Facts
from backend.preflight.memory import trained_parameters

TRACED_BYTES = 10  # of a token, compressed: 9.3 in a run of SmolLM2 with the defaults
WORTH_SAYING = 0.1  # of what is free


def disk(config: TrainingConfig, facts: Facts) -> Iterator[Message]:
    """Said where it is much of what is free; a warning where it does not fit. Nothing where the worker's disk is not known."""
    shape, free = SHAPES.get(facts.origin or config.model.source), facts.disk_free
    if shape is None or free is None:
        return
    budget = config.budget
    each, count = _checkpoint_bytes(config, shape), budget.keep.most(budget.steps, budget.checkpoint_every)
    stay = count * each
    if budget.keep.at_most_gib:
        stay = min(stay, round(budget.keep.at_most_gib * GIB) + each)
    traces = TRACED_BYTES * _traced_tokens(config) if isinstance(config, GrpoConfig) else 0
    if stay + traces <= WORTH_SAYING * free:
        return
    text = f"checkpoints take up to about {stay / GIB:.1f} GiB ({count:,} of {each / GIB:.2f} GiB"
    text += f", at most {budget.keep.at_most_gib:g} GiB and one more)" if budget.keep.at_most_gib else ")"
    text += f" and token traces {traces / GIB:.1f} GiB" if traces > WORTH_SAYING * stay else ""
    text += f"; {free / GIB:.1f} GiB are free where they lie"
    if stay + traces <= free:
        yield Message(level="info", field="budget.keep", text=text)
    elif traces > stay:
        extremes: dict[str, Json] = {"telemetry.token_traces": "extremes"}
        yield Message(level="warning", field="telemetry.token_traces", text=text, fix=extremes)
    else:
        fewer = count > 3 and 4 * each + traces <= free
        yield Message(
            level="warning", field="budget.keep.last", text=text, fix={"budget.keep.last": 2} if fewer else None
        )


def _checkpoint_bytes(config: TrainingConfig, shape: ModelShape) -> int:
    """The weights that are trained, the optimizer's moments of them, and a reference that follows them."""
    followed = (
        isinstance(config, GrpoConfig)
        and config.algorithm.needs_reference
        and config.algorithm.kl.reference == "synced"
    )
    return FLOAT32 * (1 + ADAMW_STATES + followed) * trained_parameters(config.model, shape)


def _traced_tokens(config: GrpoConfig) -> int:
    """At most: as if each completion reached its limit."""
    sampling, telemetry, steps = config.sampling, config.telemetry, config.budget.steps
    completions = {
        "all": steps * sampling.completions_per_step,
        "periodic": -(-steps // telemetry.trace_every) * sampling.completions_per_step,
        "extremes": steps * sampling.prompts_per_step * min(2, sampling.group_size),
        "none": 0,
    }
    return completions[telemetry.token_traces] * sampling.max_new_tokens
