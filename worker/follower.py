"""A worker that is not node 0 of its nodes: it claims nothing, and trains its part of what node 0 announces."""

import logging
import socket
import time
from datetime import timedelta
from functools import cache, partial

import torch
from torch.distributed import DistError

from backend.contract.client import Client
from backend.contract.config import RUN_CONFIG
from backend.contract.home import CannotStart, in_words
from backend.contract.protocol import WorkerInfo
from worker.compute import compute_in_rank
from worker.errors import RunFailure
from worker.failure import failure
from worker.logs import of_run, write_logs
from worker.policy.device import describe, settle, take_devices, versions
from worker.process import Process
from worker.ranks.launch import RankFailed, run_ranks
from worker.ranks.nodes import Announced, Leader
from worker.reporter import Place
from worker.settings import Settings, is_store
from worker.store import store_of

log = logging.getLogger(__name__)

_TICK = 0.2


def follow(settings: Settings, process: Process) -> int:
    """Until asked to end, until node 0 says goodbye, or until it was away for as long as the settings say. The exit code."""
    with in_words():
        write_logs()
        devices, cards = take_devices(settings.device, settings.processes)
    settle(devices[0])
    process.listen()
    address, away_since = str(settings.rendezvous), time.monotonic()
    log.info("node %d of %d waits for node 0 at %s", settings.node_rank, settings.nodes, address)
    with cards:
        while not process.shutting_down():
            try:
                leader = Leader(settings.node_rank, address, settings.processes)
            except ConnectionError:
                if settings.idle_exit is not None and time.monotonic() - away_since >= settings.idle_exit:
                    log.info("ending, since node 0 was away for %g s", settings.idle_exit)
                    return process.exit_code(over=False)
                time.sleep(_TICK)
                continue
            try:
                code = _serve(leader, settings, devices, process)
            except DistError:
                code = None
            finally:
                leader.close()
            if code is not None:
                return code
            log.warning("node 0 no longer answers")
            away_since = time.monotonic()
    return process.exit_code(over=False)


def _serve(leader: Leader, settings: Settings, devices: list[torch.device], process: Process) -> int | None:
    """Node 0's exit code once it says goodbye, or this one's if it was asked twice to end or another took its place; None if node 0 is
    gone. Raises DistError."""
    leave = _Leave(leader, process)
    while not leader.gone:
        if (code := leader.goodbye()) is not None:
            return code
        if process.hurried():
            return process.exit_code(over=False)
        leave.if_asked()
        if (announced := leader.next()) is not None:
            _train(leader, leave, *announced, settings, devices)
        time.sleep(_TICK)
    return 1 if leader.displaced else None


class _Leave:
    """Says once that this node was asked to end: node 0 gives its run back and says goodbye."""

    def __init__(self, leader: Leader, process: Process) -> None:
        self._leader, self._process, self._said = leader, process, False

    def if_asked(self) -> bool:
        """Whether it was asked twice, and waits for nothing."""
        if self._process.shutting_down() and not self._said:
            self._said = True
            log.info("asked to end: node 0 gives the run back first, at the next step boundary")
            self._leader.leave()
        return self._process.hurried()


def _train(
    leader: Leader, leave: _Leave, number: int, announced: Announced, settings: Settings, devices: list[torch.device]
) -> None:
    claim, part = announced.claim, leader.part(number, announced, leave.if_asked)
    _, count = announced.parts[settings.node_rank]
    with of_run(claim):
        log.info("run %s, attempt %s: %s; from process %d on", claim.run_id, claim.attempt, claim.name, part.first)
        try:
            config = RUN_CONFIG.validate_python(claim.config)
            here = describe(devices[0])
            run_ranks(
                compute_in_rank,
                (
                    settings.model_copy(update={"token": None}),
                    WorkerInfo(name=f"node {settings.node_rank}", device=here, store=announced.store),
                    claim,
                    config,
                    _place(settings, announced, here),
                ),
                attempt=claim.attempt,
                devices=devices[:count],
                shards=announced.shards,
                patience=timedelta(seconds=announced.patience),
                answers={
                    "upload_content": cache(partial(_upload, settings)),
                    "status": partial(leader.pass_on, number),
                },
                part=part,
            )
        except RankFailed as failed:
            fail, lost = failed.fail, failed.lost
        except Exception as error:  # noqa: BLE001 — the boundary between a run and the worker that survives it
            fail, lost = failure(claim.attempt, error, settings.home), False
        else:
            log.info("this node's part of the run is over")
            return
        log.warning("this node's part of the run ended: %s", fail.error.message)
        leader.report(number, fail, lost=lost)


def _place(settings: Settings, announced: Announced, device: str) -> Place:
    """Where the attempt stands on this node. Raises RunFailure if its checkpoints are not node 0's."""
    claim, store = announced.claim, store_of(settings)
    if not is_store(store.folder, announced.store):
        text = (
            f"Node {settings.node_rank} ({socket.gethostname()}) does not have node 0's checkpoints at {store.folder}. Let all nodes "
            "reach the same folder there, then retry the run."
        )
        raise RunFailure("node_without_data", text)
    return Place(
        run_id=claim.run_id,
        attempt=claim.attempt,
        store=store,
        store_name=announced.store,
        resume=None if announced.resume is None else store.folder / announced.resume,
        trunk_config=announced.claim.trunk_config,
        device_name=device,
        versions=versions(),
        model_commit=claim.model_commit,
    )


def _upload(settings: Settings, upload_id: int) -> bytes:
    """A person's rows. Raises RunFailure if this node has no token."""
    try:
        token = settings.read_token()
    except CannotStart as error:
        raise RunFailure(
            "node_without_token",
            f"Node {settings.node_rank} ({socket.gethostname()}) cannot fetch the data set: {error}",
        ) from error
    with Client(settings.backend_url, token) as client:
        return client.upload_content(upload_id)
