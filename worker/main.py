"""The worker process: claim a run, train it, finish it, and again until it is asked to stop."""

import gc

gc.disable()  # the libraries' hundred thousands of objects stay: looking through them while they come takes a second

import argparse
import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import NoReturn

from backend.bucket.bucket import Bucket, BucketTrouble
from backend.contract.client import ApiError, Client, Unreachable
from backend.contract.home import CannotStart, in_words, load, make_private, token_in
from backend.contract.protocol import ASK_AGAIN_SECONDS, WorkerInfo
from backend.contract.spool import Recovery
from worker.checkpoint import remove_partial
from worker.cluster.cluster import Cluster, need_ray
from worker.cluster.drivers import KNOWN, LINE, ParentLine, lead
from worker.follower import follow
from worker.job import Spent, is_sample, run_claim
from worker.logs import write_logs
from worker.looks import Looker
from worker.policy.device import describe, give_back_memory, memory_bytes, settle, take_devices, versions
from worker.policy.offered_models import OfferedModels
from worker.process import Process
from worker.ranks.nodes import Followers
from worker.rewards.reward_folder import RewardFolder
from worker.rollout.engines import offered_engines
from worker.settings import Settings, store_name, take_name
from worker.worker import Worker

log = logging.getLogger(__name__)

_TICK = 0.1
_LONGEST_WAIT = 5.0


def main(arguments: list[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT, or for as long as the settings say; a run in progress is saved at its next step boundary and
    goes back to the queue.

    One that does not answer goes back as it is, after a while or at a second signal. Returns the process's exit code.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    cluster = line = None
    parent = os.getppid()
    with in_words():
        settings, driver = _settings(arguments)
        make_private(settings.home)
        if settings.node_rank:
            return follow(settings, Process(arguments, once=settings.once))
        token = settings.read_token()
        store = store_name(settings.own_store)
        if settings.executor == "ray":
            need_ray()
            if driver.line is None:
                write_logs()
                leader = Process(arguments)
                leader.listen()
                return lead([sys.executable, "-m", "worker.main", *arguments], leader)
            line = ParentLine(driver.line)
        name, lock = take_name(settings.home.resolve(), store)
        write_logs()
        if settings.checkpoints is not None:
            store = _name_of(Bucket(settings.checkpoints))
        if line is None:
            devices, cards = take_devices(settings.device, settings.processes)
        else:
            cluster = Cluster(settings, name, line.placed)
            devices, cards = take_devices("cpu", 1)
        device = devices[0]
        try:
            client = Client(settings.backend_url, token)
        except Unreachable as error:
            raise CannotStart(str(error)) from None
        followers = (
            Followers(settings.nodes, settings.rendezvous, settings.processes)
            if settings.rendezvous and settings.nodes > 1
            else None
        )
    settle(device)
    process = Process(arguments, once=settings.once, parent=None if line is None else parent)
    process.listen()  # after Ray, which has a handler of its own for SIGTERM
    with in_words():
        found = driver.computes_on or (cluster and cluster.describe(process.shutting_down))
    if cluster is not None and found is None:
        return 0
    computes_on, memory = found or (describe(device), memory_bytes(device))
    if line is not None:
        line.connected((computes_on, memory))
    with (
        lock,
        cards,
        client,
        RewardFolder(settings.own_rewards, settings.reward_path) as own,
        OfferedModels(settings.model_root, settings.models) as offered,
    ):
        info = WorkerInfo(
            name=name,
            device=computes_on,
            memory_bytes=memory,
            store=store,
            versions=versions(),
            judges=sorted(settings.judges),
            reward_functions=sorted(settings.reward_functions),
            engines=list(offered_engines(settings)),
            processes=settings.nodes * settings.processes,
        )

        def end(over: bool) -> NoReturn:
            if followers is not None and process.last:
                followers.close(process.exit_code(over))
            process.end(over)

        worker = Worker(
            settings,
            info,
            client,
            device,
            devices=devices,
            cluster=cluster,
            followers=followers,
            shutting_down=lambda: process.shutting_down() or (followers is not None and followers.leaving),
            hurried=process.hurried,
            end_process=end,
            reward_files=lambda: own.files,
            models=lambda: offered.models,
        )
        remove_partial(settings.store)
        log.info("worker %s on %s asks %s for work", name, info.device, settings.backend_url)
        try:
            code = process.exit_code(_serve(worker, process))
        except CannotStart as error:
            sys.stderr.write(f"groupscope: {error}\n")
            code = 1
        except Spent as spent:
            log.warning("%s: this process is ending", spent)
            end(spent.over)
        if followers is not None:
            followers.close(code)
    return code


def _name_of(bucket: Bucket) -> str:
    """The store's name, once the bucket answers. Raises CannotStart if it refuses."""
    while True:
        try:
            return bucket.name()
        except BucketTrouble as trouble:
            if not trouble.away:
                text = f"the bucket of GROUPSCOPE_CHECKPOINTS cannot be used: {trouble}; mend its name, or AWS_* in the environment"
                raise CannotStart(text) from None
            log.warning("%s; trying again", trouble)
        time.sleep(_LONGEST_WAIT)


def _serve(worker: Worker, process: Process) -> bool:
    """Claim and run until asked to stop, or until what the settings ask for is done; one run alone on a cluster, where another process
    waits for the next.

    A backend that is away is waited for. Returns whether the one run that it was for is over, or there was none. Raises Spent, and
    CannotStart once the backend has refused to give work for as long as the queue may be empty.
    """
    settings = worker.settings
    wait, recovered, idle_since = ASK_AGAIN_SECONDS, False, time.monotonic()
    recovery, looks = Recovery(worker.spool_folder, worker.client), Looker(worker)
    while not worker.shutting_down():
        offered = worker.reward_files()
        answered, refused, missing = False, "", worker.missing_nodes
        try:
            if not recovered:
                recovery.advance()
                recovered = True
            reply = worker.ask()
            claim, wait, answered = reply.claim, reply.ask_again_seconds, True
            if reply.look is not None:
                looks.take(reply.look)
        except Unreachable as error:
            log.warning("%s", error)
            claim, wait = None, min(_LONGEST_WAIT, wait * 1.5)
        except ApiError as error:
            log.warning("the backend refused to give work: %s", error.message)
            claim, wait, refused = None, _LONGEST_WAIT, error.message
        if claim is not None:
            process.last = settings.once and not is_sample(claim)
            over = run_claim(worker, claim)
            if process.last or worker.cluster is not None:
                return over
            idle_since = time.monotonic()
            try:
                give_back_memory()
            except RuntimeError as error:  # the run met an error of CUDA in words that nobody knew
                log.warning("the GPU's memory cannot be given back: %s", error)
                raise Spent(device_lost=True) from error
        else:
            now = time.monotonic()
            deadline = now + wait
            if missing:
                idle_since = now  # nobody knows yet whether there is something to do
            if settings.idle_exit is not None:
                if now - idle_since >= settings.idle_exit:
                    if refused:
                        raise CannotStart(f"the backend refused to give work: {refused}")
                    log.info("ending, since there was nothing to do for %g s", settings.idle_exit)
                    return answered
                deadline = min(deadline, idle_since + settings.idle_exit)
            # A changed reward is reported at once: somebody is in the editor, and waits.
            while not worker.shutting_down() and time.monotonic() < deadline and worker.reward_files() == offered:
                time.sleep(_TICK)
    return False


def _settings(arguments: list[str]) -> tuple[Settings, argparse.Namespace]:
    """The settings, and what the parent of a process that leads one run on a cluster gave it: `line` and `computes_on`."""
    parser = argparse.ArgumentParser(
        prog="groupscope worker", description="Train the runs that wait in the queue.", allow_abbrev=False
    )
    parser.add_argument("--backend", dest="backend_url", help="the backend's address (GROUPSCOPE_BACKEND_URL)")
    parser.add_argument("--token-file", type=Path, help="a file with the backend's token (GROUPSCOPE_TOKEN)")
    parser.add_argument("--home", type=Path, help="data directory; ./.groupscope by default (GROUPSCOPE_HOME)")
    parser.add_argument(
        "--processes",
        type=int,
        help="the most processes with which it trains a run; 1 by default (GROUPSCOPE_PROCESSES)",
    )
    parser.add_argument("--device", help="cpu, mps, cuda, or one card as cuda:1 (GROUPSCOPE_DEVICE)")
    parser.add_argument("--once", action="store_true", default=None, help="end after one run (GROUPSCOPE_ONCE)")
    parser.add_argument(
        "--idle-exit", type=float, help="end when nothing could be claimed for this many seconds (GROUPSCOPE_IDLE_EXIT)"
    )
    parser.add_argument(
        "--nodes", type=int, help="the number of machines that train a run together; 1 by default (GROUPSCOPE_NODES)"
    )
    parser.add_argument("--node-rank", type=int, help="which of them this is, from 0 on (GROUPSCOPE_NODE_RANK)")
    parser.add_argument("--rendezvous", help="where they meet, node 0's host:port (GROUPSCOPE_RENDEZVOUS)")
    parser.add_argument("--executor", choices=["local", "ray"], help="where runs are trained (GROUPSCOPE_EXECUTOR)")
    parser.add_argument("--ray-address", help="where the Ray cluster answers, host:port (GROUPSCOPE_RAY_ADDRESS)")
    driver = argparse.Namespace()
    for option, kind in ((LINE, int), (KNOWN, json.loads)):
        parser.add_argument(option, type=kind, help=argparse.SUPPRESS)
    given = vars(parser.parse_args(arguments))
    driver.line, driver.computes_on = given.pop("driver_line"), given.pop("computes_on")
    if file := given.pop("token_file"):
        given["token"] = token_in(file)
    return load(Settings, **given), driver


if __name__ == "__main__":
    sys.exit(main())
