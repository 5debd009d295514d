"""The lease: heartbeats from a thread of their own, which a long step cannot starve."""

import logging
import threading
from collections.abc import Callable

from backend.contract.client import ApiError, Client, Unreachable
from backend.contract.protocol import Claim, Heartbeat
from backend.contract.records import Progress, Requested, RewardFile
from worker.ranks.board import Board

log = logging.getLogger(__name__)

LONGEST_INTERVAL = 2.0
"""Seconds between two heartbeats at most: also how old the picture inside a long step can be."""


class LeaseLost(Exception):
    """Another attempt holds the run now: whatever this one still computes counts for nothing."""


class Lease:
    """Renews the lease of one claimed run while it is entered. Training asks it, at safe places, whether to go on.

    A backend that does not answer does not end the run: the lease is lost only when the backend says so.
    """

    def __init__(
        self, client: Client, claim: Claim, worker: str, reward_files: Callable[[], list[RewardFile]] = list
    ) -> None:
        self._client, self._claim, self._worker, self._reward_files = client, claim, worker, reward_files
        self._offered: list[RewardFile] | None = None  # what the backend knows since a heartbeat; a claim may be older
        self._progress: Progress | None = None
        self.board = Board()
        self._lost = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"lease-{claim.run_id}", daemon=True)
        self.requested: Requested = "nothing"
        self.stop_at_once = False
        self.samples_waiting = False

    def __enter__(self) -> "Lease":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(timeout=LONGEST_INTERVAL)

    def show(self, progress: Progress) -> None:
        """Say how far the step is; the next heartbeat carries it."""
        self._progress = progress

    @property
    def lost(self) -> bool:
        """Another attempt holds the run."""
        return self._lost.is_set()

    def mark_lost(self) -> None:
        """Another part of the worker learned that the lease is lost."""
        self._lost.set()

    def check(self) -> None:
        """Raises LeaseLost if another attempt holds the run."""
        if self._lost.is_set():
            raise LeaseLost(f"run {self._claim.run_id}, attempt {self._claim.attempt}")

    def _beat(self) -> None:
        interval = min(LONGEST_INTERVAL, self._claim.lease_seconds / 4)
        while not self._ended.wait(interval) and not self._lost.is_set():
            try:
                files = self._reward_files()
                beat = Heartbeat(
                    attempt=self._claim.attempt,
                    progress=None if self._progress is None else self.board.whole(self._progress),
                    ranks=self.board.picture(),
                    worker=self._worker,
                    reward_files=None if files == self._offered else files,
                )
                reply = self._client.heartbeat(self._claim.run_id, beat)
                self._offered = files
                self.requested, self.samples_waiting = reply.requested, reply.samples_waiting
                self.stop_at_once = reply.stop_at_once
            except Unreachable as error:
                log.warning("heartbeat not delivered: %s", error)
            except ApiError as error:
                if error.code == "lease_lost":
                    self._lost.set()
                else:
                    log.warning("heartbeat refused: %s", error.message)
