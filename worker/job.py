"""One claimed run, from the claim to its end: whatever happens, the backend learns a reason, and the worker lives on."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import ValidationError

from backend.contract.client import ApiError, Client, Unreachable
from backend.contract.config import RUN_CONFIG, TrainingConfig
from backend.contract.grpo import GrpoConfig
from backend.contract.protocol import Claim, ClaimRequest, Fail, Finish, Start, WorkerInfo
from backend.contract.records import Progress
from backend.contract.reward import Rewards
from backend.contract.sample import SampleConfig
from worker.checkpoint import is_whole
from worker.errors import Interrupted, RunFailure
from worker.failure import failure, out_of_memory
from worker.lease import Lease, LeaseLost
from worker.logs import of_run
from worker.policy.loading import load_policy
from worker.policy.policy import Policy
from worker.policy.sources import Pretrained, resolve
from worker.preferences.run import Means, train_on_pairs
from worker.reporter import Channels, Ending, Place
from worker.rewards.provision import reward_resources
from worker.rewards.scoring import RewardScorer
from worker.rollout.engines import load_engine
from worker.sampling_job import sample_groups, sampled_items
from worker.settings import Settings
from worker.spool import Refused, Spool, SpoolFull, send
from worker.tasks.loading import load_items
from worker.trainer import Trainer

log = logging.getLogger(__name__)

# A shutdown waits this long for a backend that is away; the spool keeps the rest for the next start.
_DRAIN_ON_SHUTDOWN = 15.0
_LOOK_FOR_SHUTDOWN = 0.5


@dataclass(frozen=True)
class Worker:
    """What every job of this process shares."""

    settings: Settings
    info: WorkerInfo
    client: Client
    device: torch.device
    shutting_down: Callable[[], bool]

    @property
    def spool_folder(self) -> Path:
        """This worker's own spool."""
        return self.settings.home.resolve() / "spool" / self.info.name


class MemoryExhausted(Exception):
    """The device ran out of memory: the process should be replaced, since fragments may stay."""


def run_claim(worker: Worker, claim: Claim) -> None:
    """Do what was claimed and tell how it ended. Raises MemoryExhausted after that was told."""
    lease = Lease(worker.client, claim, worker.info.name)
    spool = Spool(
        worker.spool_folder,
        claim.run_id,
        claim.attempt,
        worker.client,
        on_lost=lease.mark_lost,
        cap_bytes=worker.settings.spool_cap_bytes,
    )
    exhausted = False
    with of_run(claim), lease:
        end: Finish | Fail | None = None
        try:
            end = Finish(attempt=claim.attempt, outcome=_work(worker, claim, lease, spool))
        except Interrupted:
            end = Finish(attempt=claim.attempt, outcome="released")
        except LeaseLost:
            pass  # said below, also where it shows in another way
        except Exception as error:  # the boundary between a run and the worker that survives it
            exhausted = out_of_memory(error)
            end = failure(claim.attempt, error)
            if end.retryable:
                log.exception("run %s crashed", claim.run_id)
        if end is None:
            _drain(spool, worker.shutting_down)  # nothing of it is taken any more: the file goes
        else:
            _tell_the_end(worker, claim, spool, end)
        if lease.lost:
            log.warning("left run %s: another attempt than %s holds it now", claim.run_id, claim.attempt)
    spool.close()
    if exhausted:
        raise MemoryExhausted


def _tell_the_end(worker: Worker, claim: Claim, spool: Spool, end: Finish | Fail) -> None:
    """Through the spool; past it, after all that it holds, where it takes no more or the backend refused what it sent."""
    kind = "finish" if isinstance(end, Finish) else "fail"
    stored = True
    try:
        spool.append(kind, end)
    except (Refused, SpoolFull, OSError) as error:
        log.warning("run %s: the spool takes no more: %s", claim.run_id, error)
        stored = False
    _drain(spool, worker.shutting_down)
    if spool.refusal is not None:
        kind, end = "fail", failure(claim.attempt, Refused(spool.refusal))
    elif stored:
        return
    try:
        send(worker.client, claim.run_id, kind, end)
    except (ApiError, Unreachable) as error:
        log.warning("could not tell how run %s ended: %s", claim.run_id, error)


def _drain(spool: Spool, shutting_down: Callable[[], bool]) -> None:
    """Until all is sent: an absent backend is waited for, but not for long once the worker is told to end."""
    while not spool.drain(_LOOK_FOR_SHUTDOWN):
        if shutting_down():
            spool.drain(_DRAIN_ON_SHUTDOWN)
            return


def _work(worker: Worker, claim: Claim, lease: Lease, spool: Spool) -> Ending:
    def show(progress: Progress) -> None:
        lease.check()
        lease.show(progress)

    try:
        config = RUN_CONFIG.validate_python(claim.config)
    except ValidationError as error:
        raise RunFailure(
            "config_unreadable",
            "This worker is older or newer than the stored configuration; clone the run.",
            str(error),
        ) from error
    log.info("run %s, attempt %s: %s", claim.run_id, claim.attempt, claim.name)
    if isinstance(config, SampleConfig):
        return _sample(worker, claim, config, lease, spool, show)
    return _train(worker, claim, config, lease, spool, show)


class _AskedToEnd(Exception):
    """Somebody does not want a sample any more."""


def _sample(
    worker: Worker, claim: Claim, config: SampleConfig, lease: Lease, spool: Spool, show: Callable[[Progress], None]
) -> Ending:
    """Sample, score, report. Nothing is lost by leaving at any moment: a sample has no step boundaries to wait for."""

    def show_or_end(progress: Progress) -> None:
        _leave_on_shutdown(worker)
        show(progress)
        if lease.requested != "nothing":
            raise _AskedToEnd

    _announce(worker, claim, spool)
    try:
        show_or_end(Progress(total_steps=1, phase="loading the task"))
        items = sampled_items(config, fetch_upload=worker.client.upload_content)
        show_or_end(Progress(total_steps=1, phase="loading the model"))
        policy = _load(worker, claim, config, resume=None)
        with ExitStack() as scoring:
            scorer = None
            if config.rewards is not None:
                # What could not be scored, and why, is what somebody wants to see: it fails no sample.
                rewards = config.rewards.model_copy(update={"max_unscored": 1.0})
                scorer = scoring.enter_context(_scorer(worker, claim, rewards, config.model.dtype))
            report = sample_groups(config, items, policy, claim.attempt, show_or_end, scorer)
    except _AskedToEnd:
        return "stopped" if lease.requested == "stop" else "paused"
    spool.append("report", report)
    return "finished"


def _train(
    worker: Worker, claim: Claim, config: TrainingConfig, lease: Lease, spool: Spool, show: Callable[[Progress], None]
) -> Ending:
    resume = _checkpoint_to_resume(worker.settings.checkpoints, claim)
    place = Place(
        run_id=claim.run_id,
        attempt=claim.attempt,
        store=worker.settings.checkpoints,
        store_name=worker.info.store,
        resume=resume,
        device_name=worker.info.device,
        versions=worker.info.versions,
    )
    channels = Channels(
        send=spool.append,
        show=show,
        requested=lambda: lease.requested,
        between_steps=lambda: _serve_samples(worker, lease),
        shutting_down=worker.shutting_down,
    )
    if isinstance(config, GrpoConfig):
        return _train_policy(worker, claim, config, place, channels)
    means = Means(
        source=_source(worker, claim, config),
        device=worker.device,
        fetch_upload=worker.client.upload_content,
        scorer=lambda rewards: _scorer(worker, claim, rewards, config.model.dtype),
    )
    return train_on_pairs(config, means, place, channels)


def _train_policy(worker: Worker, claim: Claim, config: GrpoConfig, place: Place, channels: Channels) -> Ending:
    steps = config.budget.steps
    channels.show(Progress(total_steps=steps, phase="loading the task"))
    items = load_items(config.task, fetch_upload=worker.client.upload_content)
    _leave_on_shutdown(worker)
    channels.show(Progress(total_steps=steps, phase="loading the model"))
    policy = _load(worker, claim, config, place.resume)
    engine = load_engine(config.sampling.engine, policy, worker.settings)
    with _scorer(worker, claim, config.rewards, config.model.dtype) as scorer:
        return Trainer(config, policy, engine, items, scorer, place, channels).run()


def _leave_on_shutdown(worker: Worker) -> None:
    if worker.shutting_down():
        raise Interrupted


def _announce(worker: Worker, claim: Claim, spool: Spool) -> None:
    info = worker.info
    spool.append("start", Start(attempt=claim.attempt, from_step=0, device=info.device, versions=info.versions))


def _source(worker: Worker, claim: Claim, config: TrainingConfig | SampleConfig) -> Pretrained:
    settings, origin = worker.settings, claim.source_checkpoint
    return resolve(
        config.model.source,
        converted=settings.models,
        root=settings.model_root,
        checkpoint=None if origin is None else settings.checkpoints / origin.path,
        store=settings.checkpoints,
    )


def _load(worker: Worker, claim: Claim, config: GrpoConfig | SampleConfig, resume: Path | None) -> Policy:
    wants_reference = (
        isinstance(config, GrpoConfig)
        and config.algorithm.needs_reference
        and config.algorithm.kl.reference == "initial"
    )
    return load_policy(
        config.model,
        _source(worker, claim, config),
        worker.device,
        resume=None if resume is None else resume / "model",
        reference=wants_reference,
        seed=config.budget.seed if isinstance(config, GrpoConfig) else config.seed,
    )


@contextmanager
def _scorer(worker: Worker, claim: Claim, rewards: Rewards, dtype: str) -> Iterator[RewardScorer]:
    """A scorer with all that the rewards need of this worker; a reward model computes in the policy's precision."""
    store = worker.settings.checkpoints
    checkpoints = {source: store / reference.path for source, reference in claim.reward_checkpoints.items()}
    with (
        reward_resources(rewards, worker.settings, worker.device, dtype, checkpoints) as resources,
        RewardScorer(rewards, resources) as scorer,
    ):
        yield scorer


def _checkpoint_to_resume(store: Path, claim: Claim) -> Path | None:
    """The newest checkpoint of the live history that is whole; of no other, however whole its files may be."""
    for checkpoint in [claim.resume, *claim.earlier] if claim.resume else []:
        folder = store / checkpoint.path
        if is_whole(folder, checkpoint.sha256):
            return folder
        log.warning("checkpoint %s is damaged or gone; looking for an earlier one", folder)
    return None


def _serve_samples(worker: Worker, lease: Lease) -> None:
    """Between two steps: somebody may be waiting to try a checkpoint. Training is not disturbed by how that ends."""
    if not lease.samples_waiting:
        return
    lease.samples_waiting = False
    try:
        claim = worker.client.claim(ClaimRequest(worker=worker.info, kinds=["sample"]))
    except (Unreachable, ApiError) as error:
        log.warning("could not ask for samples: %s", error)
        return
    if claim is not None:
        try:
            run_claim(worker, claim)
        except MemoryExhausted:
            log.warning("run %s, a sample, did not fit beside the training", claim.run_id)
