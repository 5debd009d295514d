"""The facts that preflight rests on, read from the database and the uploads."""

import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import mean
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection, RowMapping, select

from backend import workers
from backend.checkpoints import files
from backend.checkpoints import store as checkpoints
from backend.contract import stored
from backend.contract.config import LOOKS, RUN_CONFIG, LookConfig, RunConfig, data_of
from backend.contract.grpo import GrpoConfig
from backend.contract.model import checkpoint_of
from backend.contract.preflight import Message
from backend.contract.queries import MetricQuery, SplitQuery
from backend.contract.reading import FIRST, NEWEST
from backend.contract.records import PHASES, Upload
from backend.contract.survey import SurveyQuery
from backend.contract.task import Dataset
from backend.contract.training import Optimizer
from backend.errors import Invalid, NotFound
from backend.lifecycle import forks
from backend.preflight.duration import evaluations
from backend.preflight.facts import Facts, StepTimes, Success, TimedRun
from backend.runs import store as runs
from backend.storage import history
from backend.storage.tables import METRIC_WIDTHS, run, worker
from backend.telemetry import metrics
from backend.uploads import columns, reading
from backend.uploads import store as uploads
from backend.uploads.reading import COUNTED_BYTES
from backend.uploads.survey import survey

RUNS_LOOKED_AT = 200
STEPS_LOOKED_AT = 50
RUNS_TIMED = 10  # for one that finished in one go, whose evaluations can be timed
FIRST_STEPS = 5  # their mean reward stands for the model before training
MOST_SECONDS = 1e9  # of a step, 30 years: what a worker reports beyond it measures nothing
PHASE_METRICS = {f"time/{phase}": phase for phase in PHASES}
LONGEST_CHAIN = 50  # of runs that start from each other's checkpoints


def gather(tx: Connection, home: Path, config: RunConfig, *, now: float, silence: float) -> Facts:
    """What is known that bears on a configuration."""
    data, read = _upload(tx, config), data_of(config)
    stores = tx.execute(select(worker.c.store).where(worker.c.seen_at >= now - silence)).scalars().all()
    alive = [one for one in workers.recent(tx, now, silence) if one.alive]
    # training runs that a worker took; their configurations are compared here, since databases compare JSON differently
    newest = select(run).where(runs.PRESENT, run.c.kind.not_in(LOOKS), run.c.attempt > 0).order_by(run.c.id.desc())
    most = 0 if isinstance(config, LookConfig) else RUNS_LOOKED_AT
    earlier = tx.execute(newest.limit(most)).mappings().all()
    of_model = [row for row in earlier if row["config"].get("model") == config.model.model_dump(mode="json")]
    similar = [row for row in of_model if _asked(row["config"]) == _asked(config.model_dump(mode="json"))]
    times = _step_times(tx, config, similar)
    if times is None and (elsewhere := _step_times(tx, config, of_model)) is not None:
        times = replace(elsewhere, other_task=True)
    return Facts(
        workers=alive,
        origin=origin_of(tx, config.model.source),
        refused=[
            *_refused(checkpoints.store_of, tx, config.model_dump(mode="json")),
            *_refused(columns.require_columns, tx, home, config),
            *_of_references(home, config, data),
        ],
        training_items=round(data.rows * (1 - read[1].held_out)) if data and read else None,
        source_items=_source_items(home, config, data),
        columns=data.columns if data else None,
        step_times=times,
        timed=list(_timed_runs(tx, [*of_model, *earlier], {one.device for one in alive})) if times is None else [],
        success=_success(tx, similar),
        disk_free=shutil.disk_usage(home).free if any(files.holds(home, store) for store in stores) else None,
    )


def of_copy(tx: Connection, facts: Facts, config: RunConfig, parent_id: int) -> Facts:
    """The facts of a copy of a run, which may read answers in another way."""
    before = tx.execute(select(run.c.config).where(run.c.id == parent_id)).scalar_one_or_none() or {}
    asked = config.model_dump(mode="json")
    for path, one in stored.rewards_in(before):
        reading = stored.number_at(before, f"{path.partition('.functions')[0]}.reading", FIRST)
        if one["kind"] == "correctness" and reading < NEWEST and stored.get(asked, path) is not None:
            text = (
                f"run {parent_id} compared answers as they stand, and this one reads them as a person does: **18** and 18 dollars "
                "are 18, and a reference is found in its solution; what is in doubt is left unscored. Fork the run to keep its way"
            )
            return replace(facts, refused=[*facts.refused, Message(level="info", text=text)])
    return facts


def of_fork(tx: Connection, facts: Facts, config: RunConfig, parent_id: int, step: int) -> Facts:
    """The facts of a run that is to go on from a step of another one. Raises NotFound."""
    facts = replace(facts, begins_at=step)
    before = tx.execute(select(run.c.config).where(run.c.id == history.owner(tx, parent_id, step))).scalar_one_or_none()
    with suppress(ValidationError):  # an older version, or no such run
        last = int(stored.number_at(before or {}, "budget.steps", 0)) - 1
        optimizer = Optimizer.model_validate(stored.get(before, "optimizer"))
        facts = replace(facts, rate_before=optimizer.rate_at(min(step, last), steps=last + 1) if step else None)
    try:
        store = None if facts.refused else checkpoints.store_of(tx, config.model_dump(mode="json"))
        begins = forks.beginning(tx, runs.row_of(tx, parent_id), config, step, store)
    except Invalid as invalid:
        return replace(facts, refused=[*facts.refused, *in_messages(invalid)])
    return replace(facts, needs=begins.needs)


def origin_of(tx: Connection, source: str) -> str:
    """The model that a chain of `run:<id>@<step>` began with, as far as the runs are still there."""
    for _ in range(LONGEST_CHAIN):
        named = checkpoint_of(source)
        if named is None:
            break
        earlier: Any = tx.execute(select(run.c.config).where(run.c.id == named[0], runs.PRESENT)).scalar_one_or_none()
        if earlier is None:
            break
        source = earlier["model"]["source"]
    return source


def _refused(look: Callable[..., object], *args: object) -> list[Message]:
    """The errors for which `look`, which a creation calls too, would refuse the run."""
    try:
        look(*args)
    except Invalid as invalid:
        return in_messages(invalid)
    return []


def in_messages(invalid: Invalid) -> list[Message]:
    """The errors for which a creation would be refused."""
    errors = ((error.field.removeprefix("config."), error.message) for error in invalid.errors)
    return [Message(level="error", field=field, text=text) for field, text in errors]


def _of_references(home: Path, config: RunConfig, upload: Upload | None) -> Iterator[Message]:
    """What is to be known of the references with which a reward compares."""
    read = data_of(config)
    kinds = [function["kind"] for _, function in stored.rewards_in(config.model_dump(mode="json"))]
    if read is None or upload is None or not isinstance(read[1], Dataset) or "correctness" not in kinds:
        return
    path, data = read
    with suppress(Invalid, FileNotFoundError):
        asked = data.model_dump(include=set(SurveyQuery.model_fields), exclude_none=True)
        for said in survey(uploads.path_of(home, upload.id), SurveyQuery.model_validate(asked)).remarks:
            yield Message(level="warning", field=f"{path}.answer_column", text=said)


def _upload(tx: Connection, config: RunConfig) -> Upload | None:
    upload_id = columns.upload_of(config)
    try:
        return None if upload_id is None else uploads.get(tx, upload_id)
    except NotFound:
        return None


def _source_items(home: Path, config: RunConfig, upload: Upload | None) -> dict[str, int]:
    """Items to train on by source, of the sources with a share; nothing if the upload is too large to count, or one of them is not in it."""
    asked = data_of(config)
    if asked is None or upload is None or not isinstance(asked[1], Dataset) or not asked[1].shares:
        return {}
    data, path = asked[1], uploads.path_of(home, upload.id)
    if upload.size_bytes > COUNTED_BYTES or not path.exists():
        return {}
    query = SplitQuery(prompt_column=data.prompt_column, held_out=data.held_out, source_column=data.source_column)
    found = reading.read(path, query, tuple(data.shares)).split.sources
    counts = {name: found[name].train if name in found else 0 for name in data.shares}
    return counts if all(counts.values()) else {}


def _timed_runs(tx: Connection, rows: Iterable[RowMapping], devices: Collection[str]) -> Iterator[TimedRun]:
    """On each of the devices, and with each number of processes, the first of the runs whose steps were measured; of any model and any sizes."""
    seen = set[tuple[str, int]]()
    known = {row["id"]: row for row in rows if row["kind"] == "grpo" and row["device"] in devices}
    for row in islice(known.values(), RUNS_TIMED):
        with suppress(ValidationError):  # of an older version
            config = RUN_CONFIG.validate_python(row["config"])
            if not isinstance(config, GrpoConfig) or (kind := (row["device"], config.compute.processes)) in seen:
                continue
            if times := _newest_times(tx, row, ["step_time"])["step_time"]:
                seen.add(kind)
                yield TimedRun(row["id"], config, origin_of(tx, config.model.source), row["device"], times)


def _asked(config: Any) -> object:
    """The task of a run, or of its pairs; the pairs themselves if no task gave them."""
    pairs = config.get("pairs") or {}
    return config.get("task") or pairs.get("task") or pairs


def _success(tx: Connection, similar: Sequence[RowMapping]) -> Success | None:
    """How often the model was right before the newest similar run trained it."""
    for row in similar:
        measured = row["summary"].get("eval/pass@1:first", row["summary"].get("eval/pass@1"))
        if measured is not None and 0 <= measured <= 1:
            return Success(measured, f"pass@1 before training in run {row['id']}")
    for row in similar:
        series = metrics.read(tx, row["id"], MetricQuery(names=("reward",), to_step=FIRST_STEPS - 1)).series
        rewards = [value for value in series["reward"].value if value is not None] if "reward" in series else []
        if rewards and 0 <= (rate := mean(rewards)) <= 1:
            return Success(rate, f"mean reward of the first steps of run {row['id']}")
    return None


def _step_times(tx: Connection, config: RunConfig, similar: Sequence[RowMapping]) -> StepTimes | None:
    """Seconds of the newest steps of the same shape on the device that ran the newest of them, whole and by phase; and of evaluations."""
    wanted_config = config.model_dump(mode="json")
    wanted = _shape(wanted_config)
    device: str | None = None
    evaluated: list[float] = []
    seconds: dict[str, list[float]] = {name: [] for name in ("step_time", *PHASE_METRICS)}
    timed = 0
    for row in similar:
        if _shape(row["config"]) != wanted or row["device"] is None or row["device"] != (device or row["device"]):
            continue
        newest = _newest_times(tx, row, seconds)
        for name, values in newest.items():
            seconds[name] += values
        if seconds["step_time"]:
            device = row["device"]
        if newest["step_time"] and _evaluation(row["config"]) == _evaluation(wanted_config):
            evaluated += _seconds_each(tx, row)
        timed += 1
        if len(seconds["step_time"]) >= STEPS_LOOKED_AT and (evaluated or timed >= RUNS_TIMED):
            break
    if device is None:
        return None
    kept = {name: values[:STEPS_LOOKED_AT] for name, values in seconds.items()}
    return StepTimes(device, kept["step_time"], {phase: kept[name] for name, phase in PHASE_METRICS.items()}, evaluated)


def _newest_times(tx: Connection, row: RowMapping, names: Iterable[str]) -> dict[str, list[float]]:
    """The seconds of a run's last steps by metric, the newest first; without what cannot be a time."""
    wanted = MetricQuery(names=tuple(names), from_step=max(0, row["step"] - STEPS_LOOKED_AT))
    series = metrics.read(tx, row["id"], wanted).series
    return {
        name: [value for value in reversed(series[name].value) if value is not None and 0 <= value <= MOST_SECONDS]
        if name in series
        else []
        for name in wanted.names
    }


def _evaluation(config: Any) -> object:
    """What an evaluation's duration depends on, beside what a step's does."""
    return {name: stored.get(config, f"budget.{name}") for name in ("eval_items", "eval_samples")}


def _seconds_each(tx: Connection, row: RowMapping) -> Iterator[float]:
    """What a run took beside its steps, for each of its evaluations; nothing of a run that did not finish in one go."""
    wide = MetricQuery(names=("step_time",), width=max(METRIC_WIDTHS))  # a run may have a million steps
    means = metrics.read(tx, row["id"], wide).series["step_time"]
    counts = means.stretches
    if row["status"] != "finished" or row["attempt"] != 1 or counts is None:
        return
    every = int(stored.number_at(row["config"], "budget.eval_every", 0))
    made = evaluations(sum(counts.finite) + sum(counts.missing), every)
    if made:
        whole = (row["finished_at"] - row["started_at"]).total_seconds()
        summed = sum(mean * finite for mean, finite in zip(means.value, counts.finite, strict=True) if mean)
        yield max(0.0, whole - summed) / made


def _shape(config: Any) -> tuple[object, ...]:
    """What a step's duration depends on, beside model and task; a run of an older version may lack any of it."""
    if config["kind"] != "grpo":
        return config["kind"], stored.get(config, "budget.pairs_per_step")
    return (
        "grpo",
        *(stored.get(config, f"sampling.{name}") for name in ("prompts_per_step", "group_size", "max_new_tokens")),
        stored.text_at(config, "sampling.engine", "native"),
        stored.get(config, "algorithm.updates_per_batch"),
        stored.number_at(config, "algorithm.kl.beta", 0.0) > 0,
        stored.text_at(config, "algorithm.kl.placement", "loss"),
        stored.text_at(config, "algorithm.advantage.kind") == "gae",
        stored.text_at(config, "algorithm.surrogate.kind") == "dpo",
        stored.text_at(config, "algorithm.dead_groups", "keep"),
        stored.number_at(config, "compute.processes", 1),
    )
