"""Preflight: from a configuration, right or wrong, and what is known, to what a person should see before starting; and its route."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter
from pydantic import Field, ValidationError
from sqlalchemy import Connection

from backend.contract.base import Frozen, Json, Misfit
from backend.contract.config import RUN_CONFIG, RunConfig, data_of
from backend.contract.grpo import GrpoConfig
from backend.contract.preference import SampledPairs
from backend.contract.preflight import DeadForecast, Message, Preflight, dead_share_at_rate
from backend.contract.replay import ReplayConfig
from backend.contract.sample import SampleConfig
from backend.errors import Invalid
from backend.field_errors import field_errors
from backend.looks import said as said_of_prompts
from backend.preflight.duration import time_estimate
from backend.preflight.facts import Facts, Given
from backend.preflight.gather import gather, in_messages, of_copy, of_fork
from backend.preflight.hints import hints, training_pairs
from backend.preflight.memory import memory_estimate, memory_hints
from backend.services import ServicesDep
from backend.uploads import columns

router = APIRouter(prefix="/api/v1/runs", tags=["runs"])

RATE = "optimizer.learning_rate"
RATE_JUMP = 3.0  # times: what people sweep a rate by; ten times is what tells adapters from full training
USUAL_SIZES = frozenset({2, 4, 8, 16})
# pydantic's error type -> the part of its context that is the nearest allowed value
_NEAREST = {"greater_than_equal": "ge", "less_than_equal": "le"}


def parse(config: Mapping[str, Json]) -> RunConfig | Preflight:
    """The configuration; if it is wrong, the answer that says so, with one message per field."""
    try:
        return RUN_CONFIG.validate_python(config)
    except ValidationError as error:
        return Preflight(ok=False, messages=_error_messages(error, config))


def preflight(config: RunConfig, facts: Facts) -> Preflight:
    """What a valid configuration would do."""
    messages = [*facts.refused, *hints(config, facts)]
    if isinstance(config, GrpoConfig) and (before := facts.rate_before):
        now = config.optimizer.rate_at(facts.begins_at, steps=config.budget.steps)
        if now > RATE_JUMP * before:
            text = f"the learning rate jumps from {before:.3g}, the parent's at this step, to {now:.3g} ({now / before:.3g} times): "
            text += "Adam's moments come from the lower rate, and policies often break at such a step"
            same = float(f"{config.optimizer.learning_rate * before / now:.3g}")
            messages.append(Message(level="warning", field=RATE, text=text.replace("e-0", "e-"), fix={RATE: same}))
    if isinstance(config, ReplayConfig):  # it needs what its run needed, and somewhat more
        return Preflight(ok=not any(message.level == "error" for message in messages), messages=messages)
    memory = memory_estimate(config, facts)
    if not isinstance(config, SampleConfig):
        messages += memory_hints(memory, config, facts.given)
    answer = Preflight(ok=not any(message.level == "error" for message in messages), messages=messages, memory=memory)
    if isinstance(config, SampleConfig):
        completions = config.prompt_count * config.group_size
        return answer.model_copy(update={"completions_per_step": completions, "total_completions": completions})
    if isinstance(config, GrpoConfig) and facts.begins_at:
        left = max(0, config.budget.steps - facts.begins_at)
        config = config.model_copy(update={"budget": config.budget.model_copy(update={"steps": left})})
    time = time_estimate(config, facts)
    answer = answer.model_copy(update={"time_unknown" if isinstance(time, str) else "time": time})
    if isinstance(config, GrpoConfig):
        completions = config.sampling.completions_per_step
        counts = {"completions_per_step": completions, "total_completions": completions * config.budget.steps}
        return answer.model_copy(update=counts | _dead_groups(config.sampling.group_size, facts))
    trained = config.budget.steps * config.budget.pairs_per_step
    pairs = {"training_pairs": training_pairs(config, facts), "trained_pairs": trained}
    dead = _dead_groups(config.pairs.group_size, facts) if isinstance(config.pairs, SampledPairs) else {}
    return answer.model_copy(update=pairs | dead)


def _dead_groups(group_size: int, facts: Facts) -> dict[str, object]:
    """The success rate, and the share of dead groups by size, the chosen one among them; nothing if no rate is known."""
    if facts.success is None:
        return {}
    rate = facts.success.rate
    shares = [
        DeadForecast(group_size=size, share=dead_share_at_rate(rate, size))
        for size in sorted(USUAL_SIZES | {group_size})
    ]
    return {"success_rate": rate, "success_basis": facts.success.basis, "dead_groups": shares}


def _error_messages(error: ValidationError, config: Mapping[str, Json]) -> list[Message]:
    """One message for each field that is wrong."""
    details = error.errors(include_url=False)
    messages: dict[str, Message] = {}
    for detail, found in zip(details, field_errors(details, config), strict=True):
        field, fix = found.field, None
        cause = detail.get("ctx", {}).get("error")
        nearest = detail.get("ctx", {}).get(_NEAREST.get(detail["type"], ""))
        if isinstance(cause, Misfit):
            # a fix counts from the model that raised, as the cause's field does
            parent = field.removesuffix(cause.field)
            fix = {f"{parent}{path}": value for path, value in cause.fix.items()} or None
        elif nearest is not None and field:
            fix = {field: nearest}
        earlier = messages.get(field)
        if earlier is not None:  # a choice of several types: each says why it is not the one
            messages[field] = earlier.model_copy(update={"text": f"{earlier.text}, or {found.message}"})
        else:
            messages[field] = Message(level="error", field=field or None, text=found.message, fix=fix)
    return list(messages.values())


class PreflightRequest(Frozen):
    """Any JSON object: saying what is wrong with it is the purpose. `config_json` is that of the model, if it is not known here.

    With `fork_at` it is to go on from that step of the parent.
    """

    config: dict[str, Json]
    config_json: dict[str, Json] | None = None
    parent_id: Annotated[int, Field(ge=1, le=2**63 - 1)] | None = None
    fork_at: Annotated[int, Field(ge=0, le=2**63 - 1)] | None = None

    @property
    def given(self) -> Given | None:
        """What the model's config.json says."""
        return None if self.config_json is None else Given.read(self.config_json)


def resolved(tx: Connection, home: Path, config: RunConfig) -> tuple[RunConfig, list[Message]]:
    """The configuration with the columns that it leaves open, and what is to be said of them: what was taken, or a question."""
    try:
        found = columns.resolved(tx, home, config)
    except Invalid as invalid:
        return config, in_messages(invalid)
    before, after = data_of(config), data_of(found)
    if before == after or before is None or after is None:
        return config, []
    path, data = after
    said = "; ".join(f"{name} is {value}" for name, value in data if value != getattr(before[1], name))
    return found, [Message(level="info", field=path, text=f"the rows show which column is what: {said}")]


@router.post("/preflight")
def check_run(services: ServicesDep, body: PreflightRequest) -> Preflight:
    """What a configuration would do, and what is wrong with it; no run is made."""
    config = parse(body.config)
    if isinstance(config, Preflight):
        return config
    with services.database.read() as tx:
        silence = services.settings.lease_seconds
        config, said = resolved(tx, services.settings.home, config)
        facts = gather(tx, services.settings.home, config, now=services.clock.seconds(), silence=silence)
        # of columns that a person has to name nothing else can be said
        asked = {(message.field or "").rpartition(".")[0] for message in said if message.level == "error"}
        others = [one for one in facts.refused if (one.field or "").rpartition(".")[0] not in asked or not one.field]
        facts = replace(facts, given=body.given, refused=[*said, *others])
        if body.parent_id is not None:
            given = tx, facts, config, body.parent_id
            facts = of_copy(*given) if body.fork_at is None else of_fork(*given, body.fork_at)
    if not asked:
        read = said_of_prompts(config, services.looks, facts.workers, services.clock.seconds())
        facts = replace(facts, refused=[*facts.refused, *read])
    return preflight(config, facts)
