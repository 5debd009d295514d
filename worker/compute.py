"""What is computed for a claimed run, by this process or by several: from where the attempt stands to its end."""

import shutil
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import cache, partial
from pathlib import Path

import torch

from backend.contract.base import Json
from backend.contract.compute import Compute
from backend.contract.config import RUN_CONFIG, LookConfig, TrainingConfig
from backend.contract.groups import Group
from backend.contract.grpo import GrpoConfig
from backend.contract.home import CannotStart, make_private
from backend.contract.protocol import (
    CheckpointRef,
    CheckpointReport,
    Claim,
    Finish,
    LogLine,
    Report,
    Start,
    WorkerInfo,
)
from backend.contract.records import Progress, Rank
from backend.contract.replay import ReplayConfig
from backend.contract.reward import REWARD_CHANGED, Rewards
from backend.contract.sample import SampleConfig
from worker.errors import RunFailure
from worker.logs import of_run
from worker.policy import adapter
from worker.policy.device import memory_held, settle
from worker.policy.loading import load_policy, load_reader
from worker.policy.policy import Policy
from worker.policy.sources import MOST_ADAPTERS, STORED, Pretrained, commit_of, pinned, resolve
from worker.preferences.run import Means, train_on_pairs
from worker.ranks.board import Board
from worker.ranks.launch import Line, Part, run_ranks
from worker.ranks.nodes import Announced, parts_of
from worker.ranks.ranks import ALONE, Ranks
from worker.ranks.status import Status
from worker.replay.replay import REPEATING, Replay, Replayable
from worker.replay.run import read_step, run_replay
from worker.reporter import Channels, Ending, Place
from worker.rewards.resources import reward_resources
from worker.rewards.scoring import RewardScorer
from worker.rollout.engine import quiet
from worker.rollout.engines import load_engine
from worker.sampling_job import earlier_groups, run_sample
from worker.settings import Settings, is_store, store_name
from worker.store import Show, Store
from worker.tasks.fitting import Reader, fit, kept_below
from worker.tasks.items import Items
from worker.tasks.loading import load_items
from worker.trainer import Trainer
from worker.worker import Computing, Worker


def place_of(worker: Worker, claim: Claim) -> Place:
    """Where the attempt stands, once what earlier attempts left unfinished is gone."""
    store = worker.store
    store.remove_unfinished(claim.run_id, before=claim.attempt)
    if claim.kept is not None:  # what a kill kept from being removed, or from being registered
        store.remove(claim.run_id, claim.kept, upto=(claim.attempt, 0))
    resume, remarks = _checkpoint_to_resume(store, claim, worker.show_fetch)
    return Place(
        run_id=claim.run_id,
        attempt=claim.attempt,
        store=store,
        store_name=worker.info.store,
        resume=resume,
        trunk_config=claim.trunk_config,
        device_name=worker.info.device,
        versions=worker.info.versions,
        model_commit=claim.model_commit,
        remarks=remarks,
    )


def compute(
    worker: Computing,
    claim: Claim,
    config: TrainingConfig | LookConfig,
    place: Place,
    channels: Channels,
    ranks: Ranks = ALONE,
) -> Ending:
    """Sample, replay, or train from where the attempt stands."""
    if isinstance(config, ReplayConfig):
        return _replay(worker, claim, config, place, channels)
    if isinstance(config, SampleConfig):
        return _sample(worker, claim, config, channels)
    if isinstance(config, GrpoConfig):
        return _train_groups(worker, claim, config, place, channels, ranks)
    means = Means(
        source=_source(worker, claim, config),
        device=worker.device,
        fetch_upload=worker.client.upload_content,
        scorer=lambda rewards: _scorer(worker, claim, rewards, config.model.dtype),
    )
    return train_on_pairs(config, means, place, channels)


def _sample(worker: Computing, claim: Claim, config: SampleConfig, channels: Channels) -> Ending:
    run_sample(
        config,
        worker.client,
        lambda: _load(worker, pinned(_source(worker, claim, config)), config, resume=None),
        lambda rewards: _scorer(worker, claim, rewards, config.model.dtype),
        Start(attempt=claim.attempt, from_step=0, device=worker.info.device, versions=worker.info.versions),
        channels,
    )
    return "finished"


def compute_in_ranks(
    worker: Worker,
    claim: Claim,
    config: TrainingConfig | LookConfig,
    asked: Compute,
    place: Place,
    channels: Channels,
    board: Board,
    alive: Callable[[], None],
) -> Ending:
    """Have processes of this machine, or of the cluster, do it. They reach the backend through this one alone, which has the token.

    `alive` is called when one of them has got further: the first one, which shows how the run goes, may be waiting for it.
    """

    def hear(rank: int, said: Rank) -> None:
        if board.hear(rank, said):
            alive()

    def send(kind: str, message: Start | Report | CheckpointReport | Finish) -> None:
        if isinstance(message, Report) and (remarks := board.remarks()):
            lines = [LogLine(level="warning", message=remark) for remark in remarks]
            message = message.model_copy(update={"logs": [*message.logs, *lines]})
        channels.send(kind, message)

    settings, claim = worker.settings, claim.model_copy(update={"secret": ""})
    if asked.processes > 1:
        board.begin(asked.processes)
    folder = store_name(place.store.folder)  # which all processes write to, also where a bucket lies behind it
    info = worker.info.model_copy(update={"store": folder})
    # Longer than the watch waits: it says why.
    patience = timedelta(seconds=60 + max(settings.loading_seconds, settings.silence_seconds))
    devices = worker.devices[: asked.processes]
    on_nodes: AbstractContextManager[Part | None] = nullcontext(None)
    if worker.followers is not None and asked.processes > len(devices):
        resume = None if place.resume is None else str(place.resume.relative_to(place.store.folder))
        on_nodes = worker.followers.run(
            Announced(
                claim=claim,
                store=folder,
                resume=resume,
                shards=asked.parts,
                patience=patience.total_seconds(),
                parts=parts_of(asked.processes, len(devices)),
            ),
            hear,
        )
    with on_nodes as part:
        if worker.cluster is None:
            start = partial(run_ranks, devices=devices, part=part)
            sent = settings.model_copy(update={"token": None})
        else:
            start = partial(worker.cluster.run_ranks, count=asked.processes)
            sent = settings.to_send()
        ending: Ending = start(
            compute_in_rank,
            (sent, info, claim, config, place),
            attempt=claim.attempt,
            shards=asked.parts,
            patience=patience,
            answers={
                "send": send,
                "show": channels.show,
                "requested": channels.requested,
                "between_steps": channels.between_steps,
                "shutting_down": channels.shutting_down,
                "status": hear,
                "upload_content": cache(worker.client.upload_content),  # each process asks for the same
                "earlier_groups": partial(earlier_groups, worker.client),
                "step_groups": worker.client.step_groups,
                "step_metrics": worker.client.step_metrics,
            },
        )
    return ending


class _ByLine:
    """What a process of a run reads of the backend: the worker that holds the lease does, and passes it on."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def upload_content(self, upload_id: int) -> bytes:
        """See `Reads`."""
        content: bytes = self._line.ask("upload_content", upload_id)
        return content

    def all_groups(self, run_id: int) -> list[Group]:
        """See `Reads`."""
        groups: list[Group] = self._line.ask("earlier_groups", run_id)
        return groups

    def step_groups(self, run_id: int, step: int) -> list[Group]:
        """See `Reads`."""
        groups: list[Group] = self._line.ask("step_groups", run_id, step)
        return groups

    def step_metrics(self, run_id: int, step: int) -> dict[str, float | None]:
        """See `Reads`."""
        metrics: dict[str, float | None] = self._line.ask("step_metrics", run_id, step)
        return metrics


def compute_in_rank(
    ranks: Ranks,
    device: torch.device,
    line: Line,
    settings: Settings,
    info: WorkerInfo,
    claim: Claim,
    config: TrainingConfig | LookConfig,
    place: Place,
) -> Ending:
    """What each process of a run does: the same, but the first one alone reports."""
    settle(device)
    first = ranks.first
    status = Status(ranks.rank, partial(line.tell, "status"), partial(memory_held, device))

    def show(progress: Progress) -> None:
        status.show(progress)
        if first:
            line.show(progress)

    channels = Channels(
        send=partial(line.ask, "send") if first else quiet,
        show=show,
        requested=partial(line.ask, "requested") if first else lambda: "nothing",
        between_steps=partial(line.ask, "between_steps") if first else quiet,
        shutting_down=partial(line.lately, "shutting_down") if first else lambda: False,
        worked=status.worked,
    )
    if settings.executor == "ray":
        settings = _received(settings, info.store, ranks)
    judges = {name: one.shared_by(ranks.count) for name, one in settings.judges.items()}
    settings = settings.model_copy(update={"judges": judges})
    with of_run(claim), status:
        fetching = channels.fetching(config.steps if isinstance(config, LookConfig) else config.budget.steps)
        worker = Computing(settings, info, _ByLine(line), device, fetching)
        _have_here(claim, place, fetching)
        return compute(worker, claim, config, place, channels, ranks)


def _received(settings: Settings, store: str, ranks: Ranks) -> Settings:
    """The settings on the machine that received them. Raises RunFailure if its data directory is another one, and no bucket will do."""
    if (settings.checkpoints is None or not ranks.alone) and not is_store(settings.store, store):
        text = (
            f"{socket.gethostname()}, a node of the Ray cluster, does not have the worker's data directory at {settings.home}. "
            "Mount the same folder there under the same path, or take the node out of the cluster; then retry the run."
        )
        raise RunFailure("node_without_data", text)
    try:
        make_private(settings.home)  # with a bucket it need not be there yet
        return settings.as_received()
    except CannotStart as error:
        raise RunFailure("node_settings", f"{socket.gethostname()}, a node of the Ray cluster: {error}") from error


def _train_groups(
    worker: Computing, claim: Claim, config: GrpoConfig, place: Place, channels: Channels, ranks: Ranks = ALONE
) -> Ending:
    steps = config.budget.steps
    with ExitStack() as stack:
        if claim.repeats is not None and place.begins_elsewhere:
            stack.callback(shutil.rmtree, place.repeated, ignore_errors=True)
            place = _repeat_trunk(worker, claim, claim.repeats, place, channels, steps)
        channels.load("model", steps)
        source = ranks.of_first(pinned(_source(worker, claim, config), place.model_commit))
        place = replace(place, model_commit=commit_of(source))
        items, remarks = _items(worker, config, source, channels, steps, ranks)
        channels.load("model", steps)
        policy = _load(worker, source, config, place.resume, ranks)
        policy.remarks += remarks
        engine = load_engine(config.sampling.engine, policy, worker.settings)
        channels.load("rewards", steps)
        scorer = stack.enter_context(_scorer(worker, claim, config.rewards, config.model.dtype))
        place = replace(place, reward_texts=ranks.of_first(texts := scorer.load_own()))
        if ranks.any(texts != place.reward_texts):
            raise RunFailure(
                REWARD_CHANGED,
                "The processes of the run read different files of rewards: one was saved meanwhile, or another node's home has "
                "others. Give all nodes the same files, and retry the run.",
            )
        trainer = Trainer(config, policy, engine, items, scorer, place, channels)
        shutil.rmtree(place.repeated, ignore_errors=True)  # as large as a checkpoint, and the run may take long
        return trainer.run()


def _repeat_trunk(
    worker: Computing, claim: Claim, trained: Mapping[str, Json], place: Place, channels: Channels, steps: int
) -> Place:
    """Do the steps again that lie between the checkpoint and the fork, and stand where they end. Raises NotTheSame.

    An attempt that ends before the fork has saved its own checkpoint leaves nothing: the next one does them again.
    """
    config, forked_at = RUN_CONFIG.validate_python(trained), claim.forked_at
    if not isinstance(config, GrpoConfig) or forked_at is None:
        raise RunFailure("records_gone", "The backend did not send the configuration of the steps that are done again.")
    replay = Replay(_replayable(worker, claim, config, place, channels, run_id=claim.run_id, steps=steps))
    repeated = place.repeated / "state"

    def show(*_: object, phase: str = REPEATING) -> None:
        done, total = replay.state.step - replay.from_step, forked_at - replay.from_step
        channels.show_or_end(Progress(step=forked_at, total_steps=steps, phase=phase, done=done, total=total))

    for step in range(replay.from_step, forked_at):
        replay.repeat(step, show)
    show(phase="checkpoint")
    replay.save(repeated)
    return replace(place, resume=repeated, trunk_config=trained)


def _replay(worker: Computing, claim: Claim, config: ReplayConfig, place: Place, channels: Channels) -> Ending:
    if config.checkpoint and place.resume is None:
        text = f"A replay begins from checkpoint {config.checkpoint} of run {config.run}, which is damaged or gone: {'; '.join(place.remarks)}"
        raise RunFailure("checkpoint_unreadable", text)
    run = None if claim.replayed is None else RUN_CONFIG.validate_python(claim.replayed.config)
    if not isinstance(run, GrpoConfig):
        raise RunFailure(
            "records_gone", f"The backend did not send the configuration of run {config.run}, which is replayed."
        )
    loaded = run  # with the reference that another algorithm would compare with, if the run's own has none
    if config.other is not None and not run.algorithm.needs_reference:
        loaded = run.model_copy(update={"algorithm": config.other})
    replayable = _replayable(worker, claim, run, place, channels, run_id=config.run, steps=config.steps, loaded=loaded)
    return run_replay(config, replayable, place, channels)


def _replayable(
    worker: Computing,
    claim: Claim,
    run: GrpoConfig,
    place: Place,
    channels: Channels,
    *,
    run_id: int,
    steps: int,
    loaded: GrpoConfig | None = None,
) -> Replayable:
    """A run from where the attempt stands, with the records of `run_id`; `loaded` as another configuration says, if one is given."""
    channels.load("model", steps)
    source = pinned(_source(worker, claim, run), place.model_commit)
    items, _ = _items(worker, run, source, channels, steps)
    channels.load("model", steps)
    policy = _load(worker, source, loaded or run, place.resume)
    return Replayable(
        run_id=run_id,
        config=run,
        policy=policy,
        engine=load_engine(run.sampling.engine, policy, worker.settings),
        items=items,
        checkpoint=place.resume,
        of_trunk=place.of_trunk,
        record=partial(read_step, worker.client, run_id),
    )


def _items(
    worker: Computing, config: GrpoConfig, source: Pretrained, channels: Channels, steps: int, ranks: Ranks = ALONE
) -> tuple[Items, Sequence[str]]:
    """The prompts that the model can be asked, and what the log should say of them."""
    channels.load("task", steps)
    items = load_items(config.task, fetch_upload=worker.client.upload_content)
    reader = Reader.of(*load_reader(source))
    show, kept = channels.fetching(steps), kept_below(worker.settings.home)
    return fit(items, config.task, reader, config.sampling.max_new_tokens, show, kept, ranks=ranks)


def _source(worker: Computing, claim: Claim, config: TrainingConfig | SampleConfig) -> Pretrained:
    settings, origin = worker.settings, claim.source_checkpoint
    return resolve(
        config.model.source,
        converted=settings.models,
        root=settings.model_root,
        checkpoint=None if origin is None else _named_checkpoint(worker, origin),
        store=settings.store,
    )


def _load(
    worker: Computing, source: Pretrained, config: GrpoConfig | SampleConfig, resume: Path | None, ranks: Ranks = ALONE
) -> Policy:
    wants_reference = (
        isinstance(config, GrpoConfig)
        and config.algorithm.needs_reference
        and config.algorithm.kl.reference == "initial"
    )
    return load_policy(
        config.model,
        source,
        worker.device,
        resume=None if resume is None else resume / "model",
        reference=wants_reference,
        seed=config.budget.seed if isinstance(config, GrpoConfig) else config.seed,
        ranks=ranks,
    )


@contextmanager
def _scorer(worker: Computing, claim: Claim, rewards: Rewards, dtype: str) -> Iterator[RewardScorer]:
    """A scorer with all that the rewards need of this worker; a reward model computes in the policy's precision.

    Raises RunFailure if other files of a person's own would score than in the attempts before.
    """
    checkpoints = {source: _named_checkpoint(worker, named) for source, named in claim.reward_checkpoints.items()}
    with (
        reward_resources(rewards, worker.settings, worker.device, dtype, checkpoints) as resources,
        RewardScorer(rewards, resources) as scorer,
    ):
        before, now = claim.scored_by.items(), {one.name: one.sha256 for one in scorer.load_own()}.items()
        if before and before != now:
            changed = {name for name, _ in before ^ now}
            name = min(changed & claim.scored_by.keys() or changed)  # one that can be put back, if there is one
            what, mend = "is new and did not score this run so far", "Take it away"
            if name in claim.scored_by:
                what, mend = "has changed since it scored this run", "Put the text back that Configuration shows"
            raise RunFailure(
                REWARD_CHANGED,
                f"{name} {what}, whose rewards would then mean two things. {mend} and retry the run, or retry it with the "
                "changed reward.",
            )
        yield scorer


def _named_checkpoint(worker: Computing, named: CheckpointRef) -> Path:
    """Where a checkpoint that the configuration names lies. Raises RunFailure if its model is not what was saved."""
    store = worker.store
    wrong = store.fetch(named.path, named.sha256, part="model/", show=worker.show_fetch)
    if wrong is None and store.bucket is not None:
        wrong = _fetch_bases(store, named.path, worker.show_fetch)
    if wrong is not None:
        text = f"Checkpoint {named.step} of run {named.run_id}, which this run names, is damaged ({wrong}). Name another one."
        raise RunFailure("checkpoint_unreadable", text)
    return store.folder / named.path


def _fetch_bases(store: Store, path: str, show: Show) -> str | None:
    """Have the checkpoints under an adapter, too, which no claim names; what is wrong with one of them."""
    for _ in range(MOST_ADAPTERS):
        model = store.folder / path / "model"
        base = adapter.settings_of(model).get("base_model_name_or_path") if (model / adapter.CONFIG).is_file() else None
        if not isinstance(base, str) or not STORED.fullmatch(base):
            break
        path = base.removesuffix("/model")
        if (wrong := store.fetch(path, None, part="model/", show=show)) is not None:
            return f"its base {path}: {wrong}"
    return None


def _checkpoint_to_resume(store: Store, claim: Claim, show: Show = quiet) -> tuple[Path | None, list[str]]:
    """The newest checkpoint of the live history that is whole, and what the run should tell about those that are not.

    A checkpoint of no other history is taken, however whole its files may be.
    """
    damaged: list[str] = []
    for checkpoint in [claim.resume, *claim.earlier] if claim.resume else []:
        wrong = store.fetch(checkpoint.path, checkpoint.sha256, show=show)
        if wrong is None:
            went_on = f"the run goes on from step {checkpoint.step}"
            return store.folder / checkpoint.path, [f"{'; '.join(damaged)}; {went_on}"] if damaged else []
        damaged.append(f"checkpoint step {checkpoint.step} is damaged ({wrong})")
    if claim.forked_at is not None and (claim.repeats is None or damaged):
        why = "; ".join(damaged) or "its checkpoint is gone"
        raise RunFailure(
            "checkpoint_unreadable", f"The fork cannot begin at step {claim.forked_at}: {why}. Fork from another step."
        )
    return None, [f"{'; '.join(damaged)}; no checkpoint is whole, so the run begins at step 0"] if damaged else []


def _have_here(claim: Claim, place: Place, show: Show) -> None:
    """Have the checkpoint that the worker chose on this machine, too, which may be another one. Raises RunFailure."""
    store = place.store
    if store.bucket is None or claim.resume is None:
        return
    for one in [claim.resume, *claim.earlier]:
        if store.folder / one.path != place.resume or store.has(one.path):
            continue
        if (wrong := store.fetch(one.path, one.sha256, show=show)) is not None:
            text = f"Checkpoint {one.step} cannot be used on one of the run's machines: {wrong}. Retry the run."
            raise RunFailure("checkpoint_unreadable", text)
