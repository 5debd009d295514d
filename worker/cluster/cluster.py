"""A Ray cluster: what is free there, and a run as a job of Ray Train.

Ray starts a run's processes and ends all of them if one is lost. It neither restarts them nor keeps checkpoints: the run goes on
in its next attempt, as after any other crash.
"""

import importlib.util
import logging
import os
import pickle
import shutil
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch

from backend.contract.home import CannotStart
from backend.contract.protocol import Fail
from backend.contract.records import RunError
from worker.cluster.exchange import Exchange, ExchangeEnd
from worker.errors import Interrupted
from worker.logs import write_logs
from worker.policy.device import describe, memory_bytes
from worker.ranks.launch import Heard, Line, RankFailed, Work, tell_end
from worker.ranks.ranks import Ranks
from worker.settings import Settings, host_and_port

log = logging.getLogger(__name__)

_CONNECT_SECONDS = 10.0
_SHOW_SECONDS = 0.5  # a word through Ray takes some milliseconds
_HEAR_SECONDS = 0.5
_LEAVE_SECONDS = 15.0  # for the others once the first process has ended; Ray Train looks every two seconds
_PROBE_SECONDS = 300.0  # a node may import torch from a cold disk
_LOOK_SECONDS = 1.0
_LONGEST_DETAILS = 10_000
# Read by Ray in this process, and passed on by it: our processes write their own log, and stay in the folder where they are.
_RAY_OPTIONS = {
    "RAY_TRAIN_V2_ENABLED": "1",
    "RAY_TRAIN_ENABLE_WORKER_STRUCTURED_LOGGING": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "120",  # for free places
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}


def need_ray() -> None:
    """Raises CannotStart if Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        text = "--executor ray needs Ray, which is not installed here: pip install 'groupscope[worker,ray]', here and on each node"
        raise CannotStart(text)


class Cluster:
    """A cluster to which this process is connected until it ends. `placed` is called once a run's processes have their places."""

    def __init__(self, settings: Settings, name: str, placed: Callable[[], None]) -> None:
        """`name`: of the worker. Raises CannotStart if the cluster does not answer or does not let this process in, and for a device that it cannot have."""
        need_ray()
        os.environ.setdefault("RAY_AUTH_MODE", "token")  # before Ray is imported: it reads it then
        os.environ.update(_RAY_OPTIONS)
        import ray

        if settings.device not in (None, "cpu", "cuda"):
            raise CannotStart(f"GROUPSCOPE_DEVICE (--device) is {settings.device}; on a Ray cluster use cpu or cuda.")
        address = str(settings.ray_address)
        try:
            socket.create_connection(host_and_port(address), _CONNECT_SECONDS).close()  # Ray would try for minutes
        except (OSError, OverflowError) as error:
            raise CannotStart(f"no Ray cluster answers at {address}: {error}. ray start --head starts one") from None
        self._ray, self._settings, self._placed = ray, settings, placed
        self._folder = settings.home.resolve() / "ray" / name  # Ray Train wants one that all nodes see
        try:
            ray.init(address=address, logging_level=logging.WARNING)
        except (ray.exceptions.RayError, ConnectionError, RuntimeError, ValueError) as error:
            said = str(error).strip() or type(error).__name__
            raise CannotStart(f"the Ray cluster at {address} cannot be used: {said}") from None
        self.on_gpus = settings.device == "cuda" or (
            settings.device is None and ray.cluster_resources().get("GPU", 0) >= 1
        )
        self._each = {"CPU": 1.0} | ({"GPU": 1.0} if self.on_gpus else {})

    def free(self) -> int:
        """How many processes it could start now; each needs a CPU, and a GPU if the cluster has some."""
        free = self._ray.available_resources()
        return min(int(free.get(name, 0)) for name in self._each)

    def describe(self, give_up: Callable[[], bool]) -> tuple[str, int | None] | None:
        """What a process computes on there, in words, and its memory in bytes, once a place is free; None if it was given up.

        Raises CannotStart if no process of ours starts there.
        """
        while not self.free():
            if give_up():
                return None
            time.sleep(_LOOK_SECONDS)
        probe = self._ray.remote(num_cpus=1, num_gpus=int(self.on_gpus), max_retries=0)(_describe)
        try:
            device, memory = self._ray.get(probe.remote(self.on_gpus), timeout=_PROBE_SECONDS)
        except self._ray.exceptions.RayError as error:
            said = str(error).strip().splitlines()[-1]
            text = f"no process of Groupscope starts on the Ray cluster at {self._settings.ray_address}: {said}. Each of its nodes needs groupscope[worker,ray], of this version"
            raise CannotStart(text) from None
        return f"{device} (Ray)", memory

    def run_ranks(
        self,
        work: Work,
        given: Sequence[object],
        *,
        attempt: int,
        count: int,
        shards: int,
        patience: timedelta,
        answers: Mapping[str, Callable[..., Any]],
    ) -> Any:
        """What `work` returns in the first of `count` processes, as `worker.ranks.launch.run_ranks` does on one machine.

        Raises RankFailed, and Interrupted if its places went to others or are taken away.
        """
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = self._ray.get_runtime_context().get_node_id()
        beside = NodeAffinitySchedulingStrategy(here, soft=False)
        exchange = self._ray.remote(num_cpus=0, scheduling_strategy=beside)(Exchange).remote()
        heard = Heard()
        ended: list[BaseException] = []

        def rank() -> None:
            _rank(exchange, work, given, attempt, count, shards)

        def fit() -> None:
            try:
                self._trainer(rank, count, patience).fit()
            except BaseException as error:  # noqa: BLE001 — the boundary of a thread: said below
                ended.append(error)

        thread = threading.Thread(target=fit, name="ranks", daemon=True)
        thread.start()
        try:
            self._answer(thread, exchange, answers, heard)
        except self._ray.exceptions.RayError as error:
            ended.append(error)
        finally:
            thread.join(_LEAVE_SECONDS)  # whatever has not ended then ends with this process
            shutil.rmtree(self._folder, ignore_errors=True)
        if heard.refused is not None:
            raise heard.refused
        if 0 in heard.ended:
            return heard.result
        if (no_fault := next(filter(None, map(_no_fault, ended)), None)) is not None:
            log.warning("%s: the run goes back to the queue", no_fault)
            raise Interrupted
        raise RankFailed(_cause(attempt, heard, ended, count))

    def _trainer(self, rank: Callable[[], None], count: int, patience: timedelta) -> Any:
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchConfig, TorchTrainer
        from ray.train.v2.api.config import LoggingConfig

        class Trainer(TorchTrainer):  # type: ignore[misc]
            def _create_default_callbacks(self) -> list[Any]:
                # It watches over the places by asking the dashboard, which need not run, and would stay for ever if this process
                # is killed. Ray itself frees the places when the process that took them ends.
                every = super()._create_default_callbacks()
                return [one for one in every if type(one).__name__ != "PlacementGroupCleanerCallback"]

        return Trainer(
            rank,
            torch_config=TorchConfig(
                backend="cpu:gloo,cuda:nccl" if self.on_gpus else "gloo", timeout_s=int(patience.total_seconds())
            ),
            scaling_config=ScalingConfig(num_workers=count, use_gpu=self.on_gpus, resources_per_worker=self._each),
            run_config=RunConfig(
                name="run",
                storage_path=str(self._folder),
                logging_config=LoggingConfig(log_level="WARNING"),
                failure_config=FailureConfig(max_failures=0, controller_failure_limit=0, max_preemption_failures=0),
            ),
        )

    def _answer(
        self, thread: threading.Thread, exchange: Any, answers: Mapping[str, Callable[..., Any]], heard: Heard
    ) -> None:
        """Until the processes have ended, or should."""
        while heard.refused is None and 0 not in heard.ended:
            alive = thread.is_alive()
            said = self._ray.get(exchange.hear.remote(_HEAR_SECONDS))
            for rank, word in said:
                self._placed()

                def reply(answer: tuple[bool, Any], rank: int = rank) -> None:
                    exchange.answer.remote(rank, pickle.dumps(answer))

                heard.take(rank, pickle.loads(word), answers, reply)  # noqa: S301 — our own code wrote it
                if heard.refused is not None:
                    reply((False, None))
                    return
            if not said and not alive:
                return


def _rank(exchange: Any, work: Work, given: Sequence[object], attempt: int, count: int, shards: int) -> None:
    """One of the processes of a run, from its start to its end. Ray Train has made them meet."""
    from ray.train import get_context
    from ray.train.torch import get_device

    rank, device = get_context().get_world_rank(), get_device()
    line = Line(ExchangeEnd(exchange, rank), every=_SHOW_SECONDS)
    line.tell("here", None)
    write_logs()
    logging.getLogger("worker.reporter").disabled = rank > 0  # all would write the run's log
    if not tell_end(line, attempt, lambda: work(Ranks(rank, count, shards), device, line, *given)):
        raise RuntimeError(f"process {rank} failed, and the worker knows why")  # Ray ends the others


def _describe(on_gpu: bool) -> tuple[str, int | None]:
    device = torch.device("cuda" if on_gpu else "cpu")
    return describe(device), memory_bytes(device)


def _no_fault(error: BaseException) -> str | None:
    """What ended a job without any fault of the run's, if it did: such an end does not count as a failure."""
    deaths = getattr(error, "worker_failures", {}).values()
    preempted = any(getattr(getattr(one, "health_check_failure", one), "preempted", False) for one in deaths)
    if preempted or type(error).__name__ == "PreemptionError":
        return "a node of the Ray cluster is taken away"
    if type(getattr(error, "controller_failure", None)).__name__ == "WorkerGroupStartupTimeoutError":
        return "other runs took the places on the Ray cluster"
    return None


def _cause(attempt: int, heard: Heard, ended: Sequence[BaseException], count: int) -> Fail:
    """Why the processes ended: what one of them said, unless it only lost another; else what Ray says."""
    if (own := heard.own_failure()) is not None:
        return own
    said = {rank for rank, *_ in heard.failed}
    of_ranks: Mapping[int, BaseException] = next(
        (one.worker_failures for one in ended if hasattr(one, "worker_failures")), {}
    )
    died = sorted(rank for rank in of_ranks if rank not in said)
    which = f"Process {died[0]} of the {count} processes" if died and count > 1 else "A process"
    message = (
        f"{which} of this run died on the Ray cluster, by a kill, for want of memory, or with its node. The run goes on from its "
        "last checkpoint."
    )
    details = "\n".join(map(str, ended))[:_LONGEST_DETAILS] or None
    return Fail(attempt=attempt, error=RunError(code="rank_died", message=message, details=details), retryable=True)
