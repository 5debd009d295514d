"""One claimed run, from the claim to its end: whatever happens, the backend learns a reason, and the worker lives on."""

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import torch
from pydantic import BaseModel, ValidationError

from backend.contract.client import ApiError, Client, Unreachable
from backend.contract.compute import Compute
from backend.contract.config import RUN_CONFIG, Kind, TrainingConfig
from backend.contract.groups import Group
from backend.contract.grpo import GrpoConfig
from backend.contract.home import CannotStart
from backend.contract.protocol import (
    Accepted,
    CheckpointRef,
    CheckpointReport,
    Claim,
    ClaimReply,
    ClaimRequest,
    Fail,
    Finish,
    Start,
    WorkerInfo,
)
from backend.contract.records import OfferedModel, Progress, RewardFile, RunError
from backend.contract.reward import REWARD_CHANGED, Rewards
from backend.contract.sample import SampleConfig
from worker.cluster.cluster import Cluster
from worker.errors import Interrupted, RunFailure
from worker.failure import device_lost, failure, of_device
from worker.lease import Lease, LeaseLost
from worker.logs import of_run
from worker.policy import adapter
from worker.policy.device import memory_held, settle
from worker.policy.loading import load_policy
from worker.policy.policy import Policy
from worker.policy.sources import MOST_ADAPTERS, STORED, Pretrained, commit_of, pinned, resolve
from worker.preferences.run import Means, train_on_pairs
from worker.ranks.board import Board
from worker.ranks.launch import Line, Part, RankFailed, run_ranks
from worker.ranks.nodes import Announced, Followers, parts_of
from worker.ranks.ranks import ALONE, Ranks
from worker.ranks.status import Status
from worker.reporter import Channels, Ending, Place
from worker.rewards.resources import reward_resources
from worker.rewards.scoring import RewardScorer
from worker.rollout.engine import quiet
from worker.rollout.engines import load_engine
from worker.sampling_job import earlier_groups, run_sample
from worker.settings import Settings, is_store
from worker.spool import Damaged, Refused, Spool, SpoolFull, may_pass, send
from worker.store import Show, Store, store_of
from worker.tasks.loading import load_items
from worker.trainer import Trainer
from worker.watch import Asked, Patience, Verdict, Watch

log = logging.getLogger(__name__)

# A shutdown waits this long for a backend that is away; the spool keeps the rest for the next start.
_DRAIN_ON_SHUTDOWN = 15.0
_LOOK_FOR_SHUTDOWN = 0.5
# Less than a supervisor's grace, beside the seconds that a shutdown waits for an answer.
_LAST_WORDS = 10.0
_TELL_AGAIN = 1.0
_FEW_BYTES = 2**20


@dataclass(frozen=True)
class Worker:
    """What every job of this process shares."""

    settings: Settings
    info: WorkerInfo
    client: Client
    device: torch.device
    shutting_down: Callable[[], bool]
    devices: Sequence[torch.device] = ()  # of the processes that train one run together, the same one first
    cluster: Cluster | None = None  # what computes in the place of this process
    followers: Followers | None = None  # the other nodes that train one run with this one
    hurried: Callable[[], bool] = lambda: False  # asked twice to shut down
    # At once, with whether the run is over; a fresh process takes its place unless this one was asked to end.
    end_process: Callable[[bool], None] = lambda over: None
    reward_files: Callable[[], list[RewardFile]] = list  # what its folder of rewards offers now
    models: Callable[[], list[OfferedModel]] = list  # what lies below its model root and in its cache now
    show_fetch: Show = quiet  # of the run in hand: what is fetched for it
    ending: threading.Lock = field(default_factory=threading.Lock)
    held: "list[tuple[Claim, Spool]]" = field(default_factory=list)  # a sample is served inside of a training run

    def ask(self, *kinds: Kind) -> ClaimReply:
        """For a run to work on, of these kinds or of all. Raises ApiError, Unreachable."""
        processes = self.info.processes if self.cluster is None else self.cluster.free()
        if not processes or (self.followers is not None and self.followers.missing):
            return ClaimReply()
        now = {"processes": processes, "reward_files": self.reward_files(), "models": self.models()}
        info = self.info.model_copy(update=now)
        return self.client.ask(ClaimRequest(worker=info, kinds=kinds) if kinds else ClaimRequest(worker=info))

    @property
    def store(self) -> Store:
        """Where the checkpoints lie that it reaches."""
        return store_of(self.settings)

    @property
    def spool_folder(self) -> Path:
        """This worker's own spool."""
        return self.settings.home.resolve() / "spool" / self.info.name


class Spent(Exception):
    """The process should be replaced: after memory ran out fragments may stay, after other errors of a GPU nothing works there.

    `device_lost` tells which, and `over` whether the run is over.
    """

    def __init__(self, *, device_lost: bool, over: bool = False) -> None:
        super().__init__("the GPU failed" if device_lost else "out of memory")
        self.device_lost, self.over = device_lost, over


def is_sample(claim: Claim) -> bool:
    """Whether a person waits for it, and nothing is trained."""
    return claim.config.get("kind") == "sample"


def run_claim(worker: Worker, claim: Claim) -> bool:
    """Do what was claimed and report how it ended: whether the run is over, and the backend knows. Raises Spent after the report."""
    lease = Lease(worker.client, claim, worker.info.name, worker.reward_files)
    spool = Spool(
        worker.spool_folder,
        claim.run_id,
        claim.attempt,
        worker.client,
        on_lost=lease.mark_lost,
        cap_bytes=worker.settings.spool_cap_bytes,
        secret=claim.secret,
        on_taken=partial(_remove_forgotten, worker.store, claim.run_id),
    )
    watch = _watch(worker, claim, lease, spool)
    spent: Spent | None = None
    over = True
    with of_run(claim), lease:
        end: Finish | Fail | None = None
        try:
            with watch:
                end = Finish(attempt=claim.attempt, outcome=_work(worker, claim, lease, spool, watch))
        except Interrupted as interrupted:
            end = Finish(attempt=claim.attempt, outcome=interrupted.ending)
        except LeaseLost:
            pass  # said below, also where it shows in another way
        except RankFailed as failed:
            end = failed.fail
        except Exception as error:  # the boundary between a run and the worker that survives it
            if of_device(error):
                spent = Spent(device_lost=device_lost(error))
            end = failure(claim.attempt, error, worker.settings.home)
            if end.retryable:
                log.exception("run %s crashed", claim.run_id)
        if end is None:
            _drain(spool, worker.shutting_down)  # nothing of it is taken any more: the file goes
        else:
            over = _tell_the_end(worker, claim, spool, end) and _ends(end)
        worker.held.remove((claim, spool))
        if lease.lost:
            log.warning("left run %s: another attempt than %s holds it now", claim.run_id, claim.attempt)
    spool.close()
    if spent:
        spent.over = over
        raise spent
    return over


def _watch(worker: Worker, claim: Claim, lease: Lease, spool: Spool) -> Watch:
    """The watch over a claimed run, which is held from now on."""
    worker.held.append((claim, spool))
    settings = worker.settings
    return Watch(
        claim.attempt,
        Patience(settings.loading_seconds, settings.silence_seconds, settings.stop_seconds),
        lambda: Asked(
            stop=lease.requested == "stop",
            stop_at_once=lease.stop_at_once,
            shutdown=worker.shutting_down(),
            shutdown_at_once=worker.hurried(),
            lost=lease.lost,
        ),
        lambda verdict: _end_process(worker, claim, verdict),
        worker.ending,
    )


def _end_process(worker: Worker, claim: Claim, verdict: Verdict) -> None:
    """Send how everything held ends, within a few seconds, and end the process. The thread that trains may hang."""
    log.error("%s; ending this process", verdict.why)
    over = list[bool]()

    def tell() -> None:
        for held, spool in worker.held:
            other = RunError(
                code="process_ended", message=f"The worker's process was ended because of run {claim.run_id}."
            )
            released = Finish(attempt=held.attempt, outcome="released", error=other)
            end = verdict.end if held is claim else released
            over.append(_tell_the_end(worker, held, spool, end, hurry=True) and _ends(end))

    teller = threading.Thread(target=tell, name="last-words", daemon=True)
    teller.start()
    teller.join(_LAST_WORDS)  # the thread that hangs may hold a lock, and the backend may be away
    worker.end_process(len(over) == len(worker.held) and all(over))


def _ends(end: Finish | Fail) -> bool:
    """Whether no worker goes on with the run, unless a person says so."""
    return end.outcome != "released" if isinstance(end, Finish) else not end.retryable


def _tell_the_end(worker: Worker, claim: Claim, spool: Spool, end: Finish | Fail, *, hurry: bool = False) -> bool:
    """Through the spool; past it, after all that it holds, where it takes no more or the backend refused what it sent.

    Returns whether the backend has heard it.
    """
    kind = "finish" if isinstance(end, Finish) else "fail"
    if spool.waiting_bytes <= _FEW_BYTES:  # the backend's reserve is there for other ends and for deletions, too
        worker.client.ending.add((claim.run_id, claim.attempt))
    stored = True
    try:
        spool.append(kind, end)
    except (Refused, Damaged, SpoolFull, OSError) as error:
        log.warning("run %s: the spool takes no more: %s", claim.run_id, error)
        stored = False
    sent = _drain(spool, lambda: hurry or worker.shutting_down())
    if spool.trouble is not None:
        kind, end = "fail", failure(claim.attempt, spool.trouble)
    elif stored:
        return sent
    while (reason := _untold(worker, claim, kind, end)) is not None:
        if hurry or worker.shutting_down():
            log.warning("could not tell how run %s ended: %s", claim.run_id, reason)
            return False
        time.sleep(_TELL_AGAIN)
    return True


def _untold(worker: Worker, claim: Claim, kind: str, end: Finish | Fail) -> str | None:
    """Send how a run ended; why that may work later, if it did not. A full disk at the backend is waited for, too."""
    try:
        send(worker.client, claim.run_id, kind, end)
    except Unreachable as error:
        return str(error)
    except ApiError as error:
        if may_pass(error):
            return error.message
        log.warning("could not tell how run %s ended: %s", claim.run_id, error.message)
    return None


def _drain(spool: Spool, shutting_down: Callable[[], bool]) -> bool:
    """Wait until all is sent: for an absent backend, too, but not for long once the worker is asked to end. False if it was not."""
    while not spool.drain(_LOOK_FOR_SHUTDOWN):
        if shutting_down():
            return spool.drain(_DRAIN_ON_SHUTDOWN)
    return True


def _work(worker: Worker, claim: Claim, lease: Lease, spool: Spool, watch: Watch) -> Ending:
    def show(progress: Progress) -> None:
        lease.check()
        lease.show(progress)
        watch.show(progress.phase)

    def between_steps() -> None:
        watch.show(None)
        if worker.cluster is None:  # there a sample has a place of its own
            _serve_samples(worker, lease)

    try:
        config = RUN_CONFIG.validate_python(claim.config)
    except ValidationError as error:
        raise RunFailure(
            "config_unreadable",
            "This worker is older or newer than the stored configuration; clone the run.",
            str(error),
        ) from error
    log.info("run %s, attempt %s: %s", claim.run_id, claim.attempt, claim.name)
    channels = Channels(
        send=spool.append,
        show=show,
        requested=lambda: lease.requested,
        between_steps=between_steps,
        shutting_down=worker.shutting_down,
    )
    steps = config.steps if isinstance(config, SampleConfig) else config.budget.steps
    worker = replace(worker, show_fetch=channels.fetching(steps))
    place = _place(worker, claim)
    compute = config.compute if isinstance(config, GrpoConfig) else Compute()
    if worker.cluster is None and compute.processes == 1:
        return _compute(worker, claim, config, place, channels)
    return _compute_in_ranks(worker, claim, config, compute, place, channels, lease.board)


def _place(worker: Worker, claim: Claim) -> Place:
    """Where the attempt stands, once what earlier attempts left unfinished is gone."""
    store = worker.store
    store.remove_unfinished(claim.run_id, before=claim.attempt)
    if claim.kept is not None:  # what a kill kept from being removed, or from being registered
        store.remove(claim.run_id, claim.kept, upto=(claim.attempt, 0))
    resume, remarks = _checkpoint_to_resume(store, claim, worker.show_fetch)
    return Place(
        run_id=claim.run_id,
        attempt=claim.attempt,
        store=store.folder,
        store_name=worker.info.store,
        resume=resume,
        device_name=worker.info.device,
        versions=worker.info.versions,
        model_commit=claim.model_commit,
        remarks=remarks,
        shared=None if store.bucket is None else store,
    )


def _compute(
    worker: Worker,
    claim: Claim,
    config: TrainingConfig | SampleConfig,
    place: Place,
    channels: Channels,
    ranks: Ranks = ALONE,
) -> Ending:
    """Sample, or train from where the attempt stands."""
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


def _sample(worker: Worker, claim: Claim, config: SampleConfig, channels: Channels) -> Ending:
    run_sample(
        config,
        worker.client,
        lambda: _load(worker, pinned(_source(worker, claim, config)), config, resume=None),
        lambda rewards: _scorer(worker, claim, rewards, config.model.dtype),
        Start(attempt=claim.attempt, from_step=0, device=worker.info.device, versions=worker.info.versions),
        channels,
    )
    return "finished"


def _compute_in_ranks(
    worker: Worker,
    claim: Claim,
    config: TrainingConfig | SampleConfig,
    compute: Compute,
    place: Place,
    channels: Channels,
    board: Board,
) -> Ending:
    """Have processes of this machine, or of the cluster, do it. They reach the backend through this one alone, which has the token."""
    settings, claim = worker.settings, claim.model_copy(update={"secret": ""})
    if compute.processes > 1:
        board.begin(compute.processes)
    # Longer than the watch waits: it says why.
    patience = timedelta(seconds=60 + max(settings.loading_seconds, settings.silence_seconds))
    devices = worker.devices[: compute.processes]
    on_nodes: AbstractContextManager[Part | None] = nullcontext(None)
    if worker.followers is not None and compute.processes > len(devices):
        resume = None if place.resume is None else str(place.resume.relative_to(place.store))
        on_nodes = worker.followers.run(
            Announced(
                claim=claim,
                store=place.store_name,
                resume=resume,
                shards=compute.parts,
                patience=patience.total_seconds(),
                parts=parts_of(compute.processes, len(devices)),
            ),
            board.hear,
        )
    with on_nodes as part:
        if worker.cluster is None:
            start = partial(run_ranks, devices=devices, part=part)
            sent = settings.model_copy(update={"token": None})
        else:
            start = partial(worker.cluster.run_ranks, count=compute.processes)
            sent = settings.to_send()
        ending: Ending = start(
            compute_in_rank,
            (sent, worker.info, claim, config, place),
            attempt=claim.attempt,
            shards=compute.parts,
            patience=patience,
            answers={
                "send": channels.send,
                "show": channels.show,
                "requested": channels.requested,
                "between_steps": channels.between_steps,
                "shutting_down": channels.shutting_down,
                "status": board.hear,
                "upload_content": worker.client.upload_content,
                "earlier_groups": partial(earlier_groups, worker.client),
            },
        )
    return ending


class _ClientByLine(Client):
    """What a process of a run may read of the backend: the worker that holds the lease reads it, and passes it on."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def upload_content(self, upload_id: int) -> bytes:
        content: bytes = self._line.ask("upload_content", upload_id)
        return content

    def all_groups(self, run_id: int) -> list[Group]:
        groups: list[Group] = self._line.ask("earlier_groups", run_id)
        return groups


def compute_in_rank(
    ranks: Ranks,
    device: torch.device,
    line: Line,
    settings: Settings,
    info: WorkerInfo,
    claim: Claim,
    config: TrainingConfig | SampleConfig,
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
        settings = _received(settings, info.store)
    judges = {name: one.shared_by(ranks.count) for name, one in settings.judges.items()}
    settings = settings.model_copy(update={"judges": judges})
    with of_run(claim), status:
        fetching = channels.fetching(config.steps if isinstance(config, SampleConfig) else config.budget.steps)
        worker = Worker(
            settings, info, _ClientByLine(line), device, shutting_down=channels.shutting_down, show_fetch=fetching
        )
        _have_here(claim, place, fetching)
        return _compute(worker, claim, config, place, channels, ranks)


def _received(settings: Settings, store: str) -> Settings:
    """The settings on the machine that received them. Raises RunFailure if its data directory is another one, and no bucket has it."""
    if settings.checkpoints is None and not is_store(settings.store, store):
        text = (
            f"{socket.gethostname()}, a node of the Ray cluster, does not have the worker's data directory at {settings.home}. "
            "Mount the same folder there under the same path, or take the node out of the cluster; then retry the run."
        )
        raise RunFailure("node_without_data", text)
    try:
        return settings.as_received()
    except CannotStart as error:
        raise RunFailure("node_settings", f"{socket.gethostname()}, a node of the Ray cluster: {error}") from error


def _train_groups(
    worker: Worker, claim: Claim, config: GrpoConfig, place: Place, channels: Channels, ranks: Ranks = ALONE
) -> Ending:
    steps = config.budget.steps
    channels.load("task", steps)
    items = load_items(config.task, fetch_upload=worker.client.upload_content)
    channels.load("model", steps)
    source = ranks.of_first(pinned(_source(worker, claim, config), place.model_commit))
    place = replace(place, model_commit=commit_of(source))
    policy = _load(worker, source, config, place.resume, ranks)
    engine = load_engine(config.sampling.engine, policy, worker.settings)
    channels.load("rewards", steps)
    with _scorer(worker, claim, config.rewards, config.model.dtype) as scorer:
        place = replace(place, reward_texts=ranks.of_first(texts := scorer.load_own()))
        if ranks.any(texts != place.reward_texts):
            raise RunFailure(
                REWARD_CHANGED, "A file of rewards was saved while the run's processes read it; retry the run."
            )
        return Trainer(config, policy, engine, items, scorer, place, channels).run()


def _source(worker: Worker, claim: Claim, config: TrainingConfig | SampleConfig) -> Pretrained:
    settings, origin = worker.settings, claim.source_checkpoint
    return resolve(
        config.model.source,
        converted=settings.models,
        root=settings.model_root,
        checkpoint=None if origin is None else _named_checkpoint(worker, origin),
        store=settings.store,
    )


def _load(
    worker: Worker, source: Pretrained, config: GrpoConfig | SampleConfig, resume: Path | None, ranks: Ranks = ALONE
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
def _scorer(worker: Worker, claim: Claim, rewards: Rewards, dtype: str) -> Iterator[RewardScorer]:
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


def _named_checkpoint(worker: Worker, named: CheckpointRef) -> Path:
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
    return None, [f"{'; '.join(damaged)}; no checkpoint is whole, so the run begins at step 0"] if damaged else []


def _have_here(claim: Claim, place: Place, show: Show) -> None:
    """Have the checkpoint that the worker chose on this machine, too, which may be another one. Raises RunFailure."""
    if (store := place.shared) is None or claim.resume is None:
        return
    for one in [claim.resume, *claim.earlier]:
        if store.folder / one.path != place.resume or store.has(one.path):
            continue
        if (wrong := store.fetch(one.path, one.sha256, show=show)) is not None:
            text = f"Checkpoint {one.step} cannot be used on one of the run's machines: {wrong}. Retry the run."
            raise RunFailure("checkpoint_unreadable", text)


def _remove_forgotten(store: Store, run_id: int, message: BaseModel, answer: Accepted) -> None:
    """Once a checkpoint is registered, the backend has forgotten those that do not stay beside it."""
    if isinstance(message, CheckpointReport) and answer.kept is not None:
        store.remove(run_id, answer.kept, upto=(message.attempt, message.step))


def _serve_samples(worker: Worker, lease: Lease) -> None:
    """Between two steps: somebody may be waiting to try a checkpoint. Training is not disturbed by how that ends."""
    if not lease.samples_waiting:
        return
    lease.samples_waiting = False
    try:
        claim = worker.ask("sample").claim
    except (Unreachable, ApiError) as error:
        log.warning("could not ask for samples: %s", error)
        return
    if claim is not None:
        try:
            run_claim(worker, claim)
        except Spent as spent:
            if spent.device_lost:
                raise RuntimeError(f"CUDA error in run {claim.run_id}, a sample between two steps") from None
            log.warning("run %s, a sample, did not fit beside the training", claim.run_id)
