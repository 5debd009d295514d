"""From where steps of a run can be done again exactly, or why they cannot: asked before a replay is queued, or a fork between checkpoints."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError
from sqlalchemy import Connection, RowMapping, or_, select

from backend.checkpoints import store as checkpoints
from backend.contract.algorithm import Algorithm
from backend.contract.base import Json
from backend.contract.config import LOOKS, RECORDED, RUN_CONFIG
from backend.contract.grpo import GrpoConfig
from backend.contract.model import checkpoint_of
from backend.contract.replay import MOST_PASSES, MOST_REPEATED, ReplayConfig, ReplayCreate
from backend.contract.stored import put
from backend.errors import Invalid
from backend.field_errors import FieldError, field_errors
from backend.runs import store as runs
from backend.storage import history
from backend.storage.tables import attempt, prompt_group

ON_CPU = "CPU"


def configured(tx: Connection, run_id: int, asked: ReplayCreate) -> ReplayConfig | str:
    """The configuration of a replay of this step; if it could not be exact, why. Raises NotFound."""
    step = asked.step
    row = runs.row_of(tx, run_id)
    config = repeatable(row)
    if isinstance(config, str):
        return config
    if (updates := config.algorithm.updates_per_batch) > MOST_PASSES:
        return f"it trains {updates} times on each batch, and of at most {MOST_PASSES} passes the weights and gradients are kept side by side"
    if step < history.segments(tx, run_id)[-1].first:
        of = history.owner(tx, run_id, step)
        return f"the step is of run {of}, from which this one was forked; it can be done again there"
    here = (prompt_group.c.run_id == run_id) & (prompt_group.c.step == step) & history.live(prompt_group.c.step)
    group = select(prompt_group.c.id).join(attempt, history.of_attempt(prompt_group)).where(here).limit(1)
    if step >= row["step"] or tx.execute(group).first() is None:
        return f"run {run_id} has no step {step} with groups"
    way = way_to(tx, run_id, step, last=step)
    if isinstance(way, str):
        return way
    if asked.group is not None and config.algorithm.surrogate.weighs == "pairs":
        return (
            "its loss is of pairs of completions, so that none of them has a gradient of its own; leave the group out"
        )
    other = _other(config, asked) if asked.other else None
    if isinstance(other, str):
        return other
    source = config.model.source
    return ReplayConfig(
        model=config.model
        if way.checkpoint is None
        else config.model.model_copy(update={"source": f"run:{way.checkpoint['run_id']}@{way.step}"}),
        origin=source if way.checkpoint is not None and checkpoint_of(source) else None,
        run=run_id,
        step=step,
        checkpoint=way.step,
        device=way.device,
        versions=dict(way.versions),
        group=asked.group,
        other=other,
    )


class Way(NamedTuple):
    """From where a run's steps are done again, and on what."""

    checkpoint: RowMapping | None  # None: the run's beginning
    device: str
    versions: Mapping[str, str]

    @property
    def step(self) -> int:
        """The steps that are done there."""
        return 0 if self.checkpoint is None else int(self.checkpoint["step"])


def start_of(tx: Connection, run_id: int, step: int) -> RowMapping | None:
    """The newest checkpoint from which a run's own steps go on to this one: of a fork also the one that it began from, which lies in the run
    that it was forked from. None if there is none."""
    own = history.segments(tx, run_id)[-1].first
    saved = [one for one in checkpoints.reachable(tx, run_id) if own <= one["step"] <= step]
    return saved[-1] if saved else None


def way_to(tx: Connection, run_id: int, step: int, *, last: int) -> Way | str:
    """How the state after `step` steps is reached exactly, by steps of the run's own; if it cannot be, or not with the `last` step, why."""
    found, own = start_of(tx, run_id, step), history.segments(tx, run_id)[-1].first
    start = 0 if found is None else found["step"]
    if own and found is None:
        return f"the checkpoint from which the run was forked, after {own} steps, is gone"
    if step - start > MOST_REPEATED:
        nearest = f"its nearest checkpoint before it is that after {start:,} steps"
        begins = nearest if start else "it has no checkpoint before it"
        return f"{begins}, and at most {MOST_REPEATED} steps are done again to reach one; more checkpoints (budget.checkpoint_every, budget.keep) would allow it"
    computed = _computed_by(tx, run_id, start, last)
    return computed if isinstance(computed, str) else Way(found, computed["device"], computed["versions"])


FIXED = ("logprobs", "updates_per_batch", "dead_groups", "resample_rounds")
"""What another algorithm has to share with the run's: these decide what was sampled, and how often it is trained on."""


def _other(config: GrpoConfig, asked: ReplayCreate) -> Algorithm | str:
    """The run's algorithm with what was asked changed; if its update cannot be computed from the same step, why."""
    changed: Json = config.algorithm.model_dump(mode="json")
    for path, value in asked.other.items():
        changed = put(changed, path, value)
    try:
        other = GrpoConfig.model_validate(config.model_dump(mode="json") | {"algorithm": changed}).algorithm
    except ValidationError as error:
        return "; ".join(f"{one.field}: {one.message}" for one in field_errors(error.errors(include_url=False), {}))
    own = config.algorithm
    for name in FIXED:
        if getattr(other, name) != getattr(own, name):
            return f"{name} decides what a step samples and how often it trains on it, and cannot be another afterwards"
    if "gae" in (other.advantage.kind, own.advantage.kind) and other.advantage != own.advantage:
        return "a critic is trained along with the policy, so that none is there for another run's step, or would be another"
    if own.needs_reference and other.needs_reference and other.kl.reference != own.kl.reference:
        return f"the run's reference is {own.kl.reference}, and another one is not there"
    if other.needs_reference and not own.needs_reference and other.kl.reference == "synced":
        return (
            "a reference that follows the policy would have had to follow it from the beginning; compare with initial"
        )
    return other


def require_current(tx: Connection, config: ReplayConfig) -> None:
    """Raises Invalid unless the configuration is the one that the backend would make now."""
    now = configured(tx, config.run, ReplayCreate(step=config.step, group=config.group))
    if isinstance(now, str):
        raise Invalid(FieldError("step", f"cannot be done again exactly: {now}"))
    if now != config.model_copy(update={"other": None}):
        text = f"would be done again from checkpoint {now.checkpoint} now; post the step to /api/v1/runs/{config.run}/replays"
        raise Invalid(FieldError("checkpoint", text))


def repeatable(row: RowMapping) -> GrpoConfig | str:
    """The configuration, if steps of its kind can be done again; else why not."""
    kind = row["kind"]
    if kind == RECORDED:
        return "another program trained this run, and its weights are not here"
    if kind in LOOKS:
        return f"a run of the kind {kind} trains nothing"
    try:
        config = RUN_CONFIG.validate_python(row["config"])
    except ValidationError:
        return "the run's configuration is from another version of Groupscope"
    if not isinstance(config, GrpoConfig):
        return "it trains on preference pairs, and steps on groups alone are done again"
    if config.sampling.engine != "native":
        return f"it samples with {config.sampling.engine}, which need not draw the same tokens a second time; the native engine does"
    if config.compute.processes > 1:
        return f"{config.compute.processes} processes trained it, whose sums are rounded in another order than those of the one that replays"
    return config


def _computed_by(tx: Connection, run_id: int, first: int, last: int) -> RowMapping | str:
    """The device and the versions that computed these steps, if they are the same throughout and round the same way twice; else why not."""
    within = (attempt.c.from_step <= last) & or_(attempt.c.live_below.is_(None), attempt.c.live_below > first)
    query = (
        select(attempt.c.device, attempt.c.versions)
        .where(attempt.c.run_id == run_id, within)
        .order_by(attempt.c.attempt)
    )
    first_one, *others = tx.execute(query).mappings().all()
    if any(dict(one) != dict(first_one) for one in others):
        return f"steps {first} to {last} were computed by different devices or versions of the libraries"
    device: Any = first_one["device"]
    if not device or not first_one["versions"]:
        return "it was not recorded which device and which versions computed the step"
    if not device.startswith(ON_CPU):
        return f"{device} computed it, and only a CPU rounds the same way a second time"
    return first_one
