"""The spool: messages about a run, stored on the disk first and then sent in order by a thread of its own.

Training outlives a backend that is down, and sending never blocks it. One file for each attempt; a record is a line
`<crc32 in hex> <json>`, so that a torn tail is seen and dropped. The backend takes every message twice without harm,
so a new process simply sends a file that it finds from its beginning.
"""

import json
import logging
import os
import random
import threading
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from pydantic import BaseModel

from backend.contract.client import ApiError, Client, Unreachable
from backend.contract.protocol import (
    MOST_TOGETHER,
    Accepted,
    CheckpointReport,
    Fail,
    Finish,
    Report,
    Reports,
    Sent,
    Start,
)

log = logging.getLogger(__name__)

_MESSAGES: dict[str, type[Sent]] = {
    "start": Start,
    "report": Report,
    "checkpoint": CheckpointReport,
    "finish": Finish,
    "fail": Fail,
}
_LONGEST_WAIT = 5.0
# Times in a row (more than a minute) that the backend fails on one message, until that counts as for ever.
_MISTAKES = 20
_TOGETHER_BYTES = 4 * 2**20  # of reports in one request
# What waits up to this size is kept in memory, too: reading it back from the file is most of the work of sending it.
_KEPT_BYTES = _TOGETHER_BYTES
_PACE = 0.5  # seconds from one request to the next, while nothing but reports waits (decision 0052)
_WORN_BYTES = 64 * 2**20  # of the file that were sent, from which on it is emptied as soon as can be

Message = tuple[str, BaseModel]
"""A message, after its kind."""


class SpoolFull(Exception):
    """The backend was away so long that the spool reached its cap."""


class Refused(Exception):
    """The backend will never take this message: the two sides disagree about the contract."""


class Damaged(Exception):
    """A message that waited on the disk is not what was written there: those behind it would leave a gap."""


@dataclass(frozen=True)
class _Record:
    """A record in the file: its size there, and its message where it is kept."""

    size: int
    by_itself: bool  # not together with reports
    message: Message | None


class Spool:
    """Messages of one attempt, in order, given to `deliver`, which sends one or raises as `send` does; several reports are one of the kind `reports`.

    `on_lost` is called (from the sending thread) when the backend answers `lease_lost`; nothing is sent after that.
    `cap_bytes` bounds what waits: the file is emptied whenever everything in it was sent. `on_taken` is given each
    message that the backend took, and its answer. Reports that follow each other are delivered together, two requests a second.
    """

    def __init__(
        self,
        path: Path,
        deliver: Callable[[str, BaseModel], Accepted],
        on_lost: Callable[[], None],
        cap_bytes: int,
        secret: str = "",
        on_taken: Callable[[BaseModel, Accepted], None] = lambda message, answer: None,
    ) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._send, self._on_lost, self._cap = deliver, on_lost, cap_bytes
        self._on_taken = on_taken
        self._secret = secret  # in each record, for the process that may have to send it instead of this one
        private = partial(os.open, mode=0o600)
        self._file = open(self.path, "w+b", buffering=0, opener=private)  # noqa: SIM115 — close() closes it
        self._changed = threading.Condition()
        self._waiting: deque[_Record] = deque()  # still to be sent; the first of them is at _begin
        self._begin = self._end = 0
        self._closing = self._over = False
        self._drains = 0  # who waits for all to be sent
        self._sent_at = -_PACE
        self.trouble: Refused | Damaged | None = None
        self._thread = threading.Thread(target=self._ship, name=f"spool-{path.stem}", daemon=True)
        self._thread.start()

    def append(self, kind: str, message: BaseModel) -> None:
        """Store a message durably and let the thread send it. Raises SpoolFull, Refused, Damaged, and OSError (a full disk)."""
        body = json.dumps({"kind": kind, "body": message.model_dump_json(), "secret": self._secret}).encode()
        record = b"%08x %s\n" % (zlib.crc32(body), body)
        with self._changed:
            if self.trouble is not None:
                raise self.trouble
            if self._end - self._begin > self._cap:
                raise SpoolFull(f"{self.path} holds {self._end - self._begin:,} bytes that the backend did not take")
            self._write(record)
            by_itself = not isinstance(message, Report) or message.part or message.late
            kept = (kind, message) if self._end - self._begin < _KEPT_BYTES else None
            self._waiting.append(_Record(len(record), by_itself, kept))
            self._end += len(record)
            self._changed.notify_all()

    def _write(self, record: bytes) -> None:
        """The whole record at the end of the file, or nothing: what comes after a torn one could not be read again."""
        try:
            written = 0
            while written < len(record):
                written += os.pwrite(self._file.fileno(), record[written:], self._end + written)
            os.fsync(self._file.fileno())
        except OSError:
            os.ftruncate(self._file.fileno(), self._end)
            raise

    @property
    def waiting_bytes(self) -> int:
        """What the backend did not take yet."""
        with self._changed:
            return self._end - self._begin

    def drain(self, timeout: float) -> bool:
        """Wait until everything is sent (or will never be); False if the time ran out."""
        with self._changed:
            self._drains += 1
            self._changed.notify_all()
            try:
                return self._changed.wait_for(lambda: self._over or not self._waiting, timeout)
            finally:
                self._drains -= 1

    def close(self) -> None:
        """Stop sending; the file goes if nothing in it is left to send."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(timeout=_LONGEST_WAIT)
        self._file.close()
        if not self._waiting:
            self.path.unlink(missing_ok=True)

    def _ship(self) -> None:
        try:
            while records := self._next():
                taken = self._deliver(list(self._messages(records)))
                with self._changed:
                    self._settle(taken)
                    if taken != len(records):  # the others were to come at once
                        self._sent_at = -_PACE
                    self._changed.notify_all()
                if taken is None:
                    return
        finally:
            with self._changed:
                self._over = True
                self._changed.notify_all()

    def _settle(self, taken: int | None) -> None:
        """After these first records: they are off the list; or nothing on the list will be sent. Asked to close, leave the file alone."""
        for _ in range(taken or 0):
            self._begin += self._waiting.popleft().size
        if taken is None and not self._closing:
            self._waiting.clear()
        if not self._waiting and not self._closing:
            os.ftruncate(self._file.fileno(), 0)
            self._begin = self._end = 0

    def _next(self) -> list[_Record]:
        """The first records that were not sent, as soon as there are some, and can be sent together; none on closing."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            self._changed.wait_for(self._hurries, max(0.0, self._sent_at + _PACE - time.monotonic()))
            self._sent_at = time.monotonic()
            if self._closing:
                return []
            records, size = list[_Record](), 0
            for record in islice(self._waiting, MOST_TOGETHER):
                size += record.size
                if records and (record.by_itself or size > _TOGETHER_BYTES):
                    break
                records.append(record)
                if record.by_itself:
                    break
            return records

    def _hurries(self) -> bool:
        """Whether what waits is sent at once: the end of an attempt, say, is among it, or it fills a request."""
        return bool(
            self._closing
            or self._drains
            or len(self._waiting) >= MOST_TOGETHER
            or any(record.by_itself for record in self._waiting)
            or self._end - self._begin > min(_TOGETHER_BYTES, self._cap / 4)
            or self._begin > _WORN_BYTES
        )

    def _messages(self, records: Sequence[_Record]) -> Iterator[Message]:
        """The messages of the first records, up to one that was damaged in the file."""
        begin = self._begin
        for record in records:
            message = record.message
            if message is None and (parsed := _parse(os.pread(self._file.fileno(), record.size, begin))) is not None:
                message = parsed[:2]
            if message is None:
                return
            begin += record.size
            yield message

    def _deliver(self, messages: Sequence[Message]) -> int | None:
        """Send the first of these messages, as many as the backend takes in one request: how many were taken. None when they will not be
        sent, or not by this process.
        """
        if not messages:
            self.trouble = Damaged(f"a record of {self.path} is not what was written there")
            log.error("%s", self.trouble)
            return None
        wait, mistakes, said = 0.1, 0, logging.WARNING  # what goes on for an hour is said once
        while True:
            try:
                answer = self._send(*_together(messages))
            except Unreachable as error:
                log.log(said, "%s; trying again", error)
                messages = messages[: max(1, len(messages) // 2)]  # it may be there, and too slow for all of them
            except ApiError as error:
                if error.code == "lease_lost":
                    self._on_lost()
                    return None
                if len(messages) > 1 and (error.code == "internal" or not may_pass(error)):
                    messages = messages[:1]  # all but one of them may be right
                    continue
                mistakes += error.code == "internal"
                if not may_pass(error) or mistakes == _MISTAKES:
                    self.trouble = Refused(f"{error.code}: {error.message}")
                    log.warning("the backend refused a message: %s", self.trouble)
                    return None
                log.log(said, "the backend is in trouble, trying again: %s", error.message)
            else:
                for _, message in messages:
                    self._on_taken(message, answer)
                return len(messages)
            with self._changed:
                if self._changed.wait_for(lambda: self._closing, wait * random.uniform(0.5, 1.5)):
                    return None
            wait, said = min(_LONGEST_WAIT, wait * 2), logging.DEBUG


def _together(messages: Sequence[Message]) -> Message:
    """Several reports as one message; one message as it is."""
    reports = [message for _, message in messages if isinstance(message, Report)]
    return ("reports", Reports(attempt=reports[0].attempt, reports=reports)) if len(messages) > 1 else messages[0]


def may_pass(error: ApiError) -> bool:
    """Whether the same message may be taken later: the backend is in trouble, or its operator mends the token."""
    return error.status >= 500 or error.status in (401, 403, 408, 429)


def send(client: Client, run_id: int, kind: str, message: BaseModel) -> Accepted:
    """Send one message by its kind."""
    answer: Accepted = getattr(client, kind)(run_id, message)
    return answer


def spool_file(folder: Path, run_id: int, attempt: int) -> Path:
    """Where a worker keeps the messages of an attempt."""
    return folder / f"run-{run_id}-attempt-{attempt}.jsonl"


class Recovery:
    """Sends what earlier processes of this worker stored and did not get through; stale attempts are dropped."""

    def __init__(self, folder: Path, client: Client) -> None:
        self._folder, self._client = folder, client
        self._mistakes: Counter[Path] = Counter()  # of the backend, with a message of this file

    def advance(self) -> None:
        """Send all files. Raises Unreachable while the backend is down and ApiError while it is in trouble: then they stay.

        One with a message on which the backend fails for ever is dropped in the end: its run goes on from a checkpoint.
        """
        failed: ApiError | None = None
        for path in sorted(self._folder.glob("run-*-attempt-*.jsonl")):
            run_id = int(path.name.split("-")[1])
            try:
                for kind, message, secret in read(path):
                    if secret:
                        self._client.secrets[run_id, message.attempt] = secret
                    send(self._client, run_id, kind, message)
            except ApiError as error:
                self._mistakes[path] += error.code == "internal"
                if may_pass(error) and self._mistakes[path] < _MISTAKES:
                    if error.code != "internal":
                        raise
                    failed = error
                    continue
                log.info("dropped what was left of run %s: %s", run_id, error.message)
            path.unlink()
        if failed is not None:
            raise failed


def read(path: Path) -> Iterator[tuple[str, Sent, str]]:
    """The whole records of a spool file, each with its claim's secret, up to the first that cannot be read."""
    with path.open("rb") as file:
        for line in file:
            if (message := _parse(line)) is None:
                return
            yield message


def _parse(line: bytes) -> tuple[str, Sent, str] | None:
    checksum, _, body = line.rstrip(b"\n").partition(b" ")
    if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(body):
        return None
    try:
        record = json.loads(body)
        message = _MESSAGES[record["kind"]].model_validate_json(record["body"])
        return record["kind"], message, record.get("secret", "")  # an earlier version kept none, and had none
    except (ValueError, KeyError):  # intact, but from another version: skip it instead of crashing at every start
        return None
