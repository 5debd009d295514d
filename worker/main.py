"""The worker process: claim a run, train it, finish it, and again until it is asked to stop."""

import gc

gc.disable()  # the libraries' hundred thousands of objects stay: looking through them while they come takes a second

import argparse
import logging
import sys
import time
from pathlib import Path

from backend.contract.client import ApiError, Client, Unreachable
from backend.contract.home import CannotStart, in_words, load, make_private, token_in
from backend.contract.protocol import WorkerInfo
from worker.checkpoint import remove_partial
from worker.job import Spent, Worker, is_sample, run_claim
from worker.logs import write_logs
from worker.policy.device import describe, give_back_memory, memory_bytes, settle, take_devices, versions
from worker.policy.offered_models import OfferedModels
from worker.process import Process
from worker.rewards.reward_folder import RewardFolder
from worker.rollout.engines import offered_engines
from worker.settings import Settings, store_name, take_name
from worker.spool import Recovery

log = logging.getLogger(__name__)

_IDLE_SECONDS = 0.5
_TICK = 0.1
_LONGEST_WAIT = 5.0


def main(arguments: list[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT, or for as long as the settings say; a run in progress is saved at its next step boundary and
    goes back to the queue.

    One that does not answer goes back as it is, after a while or at a second signal. Returns the process's exit code.
    """
    with in_words():
        settings = _settings(sys.argv[1:] if arguments is None else arguments)
        make_private(settings.home)
        token = settings.read_token()
        store = store_name(settings.checkpoints)
        name, lock = take_name(settings.home.resolve(), store)
        write_logs()
        devices, cards = take_devices(settings.device, settings.processes)
        device = devices[0]
        try:
            client = Client(settings.backend_url, token)
        except Unreachable as error:
            raise CannotStart(str(error)) from None
    settle(device)
    process = Process(sys.argv[1:] if arguments is None else arguments, once=settings.once)
    process.listen()
    with (
        lock,
        cards,
        client,
        RewardFolder(settings.own_rewards, settings.reward_path) as own,
        OfferedModels(settings.model_root, settings.models) as offered,
    ):
        info = WorkerInfo(
            name=name,
            device=describe(device),
            memory_bytes=memory_bytes(device),
            store=store,
            versions=versions(),
            judges=sorted(settings.judges),
            reward_functions=sorted(settings.reward_functions),
            engines=list(offered_engines(settings)),
            processes=settings.processes,
        )
        worker = Worker(
            settings,
            info,
            client,
            device,
            devices=devices,
            shutting_down=process.shutting_down,
            hurried=process.hurried,
            end_process=process.end,
            reward_files=lambda: own.files,
            models=lambda: offered.models,
        )
        remove_partial(settings.checkpoints)
        log.info("worker %s on %s asks %s for work", name, info.device, settings.backend_url)
        try:
            return process.exit_code(_serve(worker, process))
        except Spent as spent:
            log.warning("%s: this process is ending", spent)
            process.end(spent.over)


def _serve(worker: Worker, process: Process) -> bool:
    """Claim and run until asked to stop, or until what the settings ask for is done. A backend that is away is waited for.

    Returns whether the one run that it was for is over, or there was none. Raises Spent.
    """
    settings = worker.settings
    wait, recovered, idle_since = _IDLE_SECONDS, False, time.monotonic()
    recovery = Recovery(worker.spool_folder, worker.client)
    while not worker.shutting_down():
        offered = worker.reward_files()
        try:
            if not recovered:
                recovery.advance()
                recovered = True
            claim = worker.ask()
            wait = _IDLE_SECONDS
        except Unreachable as error:
            log.warning("%s", error)
            claim, wait = None, min(_LONGEST_WAIT, wait * 1.5)
        except ApiError as error:
            log.warning("the backend refused to give work: %s", error.message)
            claim, wait = None, _LONGEST_WAIT
        if claim is not None:
            process.last = settings.once and not is_sample(claim)
            over = run_claim(worker, claim)
            if process.last:
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
            if settings.idle_exit is not None:
                if now - idle_since >= settings.idle_exit:
                    log.info("ending, since there was nothing to do for %g s", settings.idle_exit)
                    return True
                deadline = min(deadline, idle_since + settings.idle_exit)
            # A changed reward is reported at once: somebody is in the editor, and waits.
            while not worker.shutting_down() and time.monotonic() < deadline and worker.reward_files() == offered:
                time.sleep(_TICK)
    return False


def _settings(arguments: list[str]) -> Settings:
    parser = argparse.ArgumentParser(
        prog="groupscope worker", description="Train the runs that wait in the queue.", allow_abbrev=False
    )
    parser.add_argument("--backend", dest="backend_url", help="the backend's address (GROUPSCOPE_BACKEND_URL)")
    parser.add_argument("--token-file", type=Path, help="a file with the backend's token (GROUPSCOPE_TOKEN)")
    parser.add_argument("--home", type=Path, help="data directory (GROUPSCOPE_HOME)")
    parser.add_argument("--processes", type=int, help="with how many it can train one run (GROUPSCOPE_PROCESSES)")
    parser.add_argument("--device", help="cpu, mps, cuda, or one card as cuda:1 (GROUPSCOPE_DEVICE)")
    parser.add_argument("--once", action="store_true", default=None, help="end after one run (GROUPSCOPE_ONCE)")
    parser.add_argument(
        "--idle-exit", type=float, help="end when nothing could be claimed for this many seconds (GROUPSCOPE_IDLE_EXIT)"
    )
    given = vars(parser.parse_args(arguments))
    if file := given.pop("token_file"):
        given["token"] = token_in(file)
    return load(Settings, **given)


if __name__ == "__main__":
    sys.exit(main())
