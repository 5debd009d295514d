"""One claimed run, from the claim to its end: whatever happens, the backend learns a reason, and the worker lives on."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from pydantic import BaseModel, ValidationError

from backend.contract.client import ApiError, Unreachable
from backend.contract.compute import Compute
from backend.contract.config import RUN_CONFIG, LookConfig
from backend.contract.grpo import GrpoConfig
from backend.contract.protocol import Accepted, CheckpointReport, Claim, Fail, Finish
from backend.contract.records import Progress, RunError
from backend.contract.spool import Damaged, Refused, Spool, SpoolFull, may_pass, send, spool_file
from worker.compute import compute, compute_in_ranks, place_of
from worker.errors import Interrupted, RunFailure
from worker.failure import device_lost, failure, of_device
from worker.lease import Lease, LeaseLost
from worker.logs import of_run
from worker.ranks.launch import RankFailed
from worker.reporter import Channels, Ending
from worker.store import Store
from worker.watch import Asked, Patience, Verdict, Watch
from worker.worker import Worker

log = logging.getLogger(__name__)

# A shutdown waits this long for a backend that is away; the spool keeps the rest for the next start.
_DRAIN_ON_SHUTDOWN = 15.0
_LOOK_FOR_SHUTDOWN = 0.5
# Less than a supervisor's grace, beside the seconds that a shutdown waits for an answer.
_LAST_WORDS = 10.0
_TELL_AGAIN = 1.0
_FEW_BYTES = 2**20


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
        spool_file(worker.spool_folder, claim.run_id, claim.attempt),
        partial(send, worker.client, claim.run_id),
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
            how = end.outcome if isinstance(end, Finish) else f"failed: {end.error.message}"
            log.info("run %s, attempt %s ended: %s", claim.run_id, claim.attempt, how)
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
    steps = config.steps if isinstance(config, LookConfig) else config.budget.steps
    worker = replace(worker, show_fetch=channels.fetching(steps))
    place = place_of(worker, claim)
    asked = config.compute if isinstance(config, GrpoConfig) else Compute()
    if worker.cluster is None and asked.processes == 1:
        return compute(worker.computing, claim, config, place, channels)
    return compute_in_ranks(worker, claim, config, asked, place, channels, lease.board, watch.alive)


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
