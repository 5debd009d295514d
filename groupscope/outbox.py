"""What a recording reports to the backend: on the disk first, under its key, and sent from there, now or by `groupscope sync`.

Two files for each recording in `<home>/recordings`: `<key>.json` is what it is, locked by the program that records, and `<key>.jsonl` its
messages. Nothing of it has the run's number, so a program can begin while the backend is away; with the same key it is the
same run at every try.
"""

import fcntl
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from pydantic import BaseModel

from backend.contract.client import ApiError, Client, Unreachable
from backend.contract.protocol import Accepted, Claim, Recording
from backend.contract.spool import Spool, may_pass, read, send

log = logging.getLogger("groupscope")

FOLDER = "recordings"  # in the home


class Outbox:
    """The messages of one recording, while its program runs. `on_claim` is called once the backend has stored the run, `on_lost` if it
    takes nothing of it any more.

    Raises OSError if the disk does not take its description.
    """

    def __init__(
        self,
        home: Path,
        recording: Recording,
        client: Client,
        *,
        cap_bytes: int,
        on_claim: Callable[[Claim], None],
        on_lost: Callable[[], None],
    ) -> None:
        folder = home / FOLDER
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._about = folder / f"{recording.key}.json"
        self._lock = _locked_description(self._about, recording)
        self._recording, self._client, self._on_claim = recording, client, on_claim
        self.claim: Claim | None = None
        self._spool = Spool(folder / f"{recording.key}.jsonl", self._deliver, on_lost, cap_bytes)

    def put(self, kind: str, message: BaseModel) -> None:
        """Store a message and have it sent. Raises SpoolFull, Refused, Damaged, OSError."""
        self._spool.append(kind, message)

    def _deliver(self, kind: str, message: BaseModel) -> Accepted:
        if self.claim is None:
            try:
                self.claim = self._client.record(self._recording)
            except ApiError as error:  # of another version, say: it stays on the disk until the backend takes it
                raise Unreachable(f"the backend does not take this run: {error.message}") from error
            self._on_claim(self.claim)
        return _send(self._client, self.claim, kind, message)

    def close(self, seconds: float) -> bool:
        """Wait so long until all is sent; whether it is. What is not stays for `groupscope sync`."""
        sent = self._spool.drain(seconds) and self._spool.trouble is None
        self._spool.close()
        if sent:
            self._about.unlink(missing_ok=True)
        self._lock.close()
        return sent


def _locked_description(about: Path, recording: Recording) -> BinaryIO:
    """The file of what the recording is, held by this process."""
    file = open(about, "xb", opener=lambda path, flags: os.open(path, flags, 0o600))  # noqa: SIM115 — held until the end
    fcntl.flock(file, fcntl.LOCK_EX)
    file.write(recording.model_dump_json().encode())
    file.flush()
    os.fsync(file.fileno())
    return file


def _send(client: Client, claim: Claim, kind: str, message: BaseModel) -> Accepted:
    return send(client, claim.run_id, kind, message.model_copy(update={"attempt": claim.attempt}))


def left_over(home: Path) -> Iterator[Path]:
    """The recordings that wait in a home, by the files that say what they are, the oldest first."""
    yield from sorted((home / FOLDER).glob("*.json"), key=lambda path: path.stat().st_mtime)


def deliver(about: Path, client: Client) -> tuple[Claim, int] | None:
    """Send what waits of a recording, and forget it: the run and how many messages; None while its program still runs.

    Raises Unreachable, ApiError if the backend refuses, and ValueError for a file that cannot be read: then it all stays. What it refuses for ever is said and dropped.
    """
    with about.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        try:
            recording = Recording.model_validate_json(file.read())
        except ValueError:
            raise ValueError(f"{about} is damaged, or of another version: it cannot be sent") from None
        claim = client.record(recording)
        messages, count = about.with_suffix(".jsonl"), 0
        for kind, message, _ in read(messages) if messages.exists() else ():
            try:
                _send(client, claim, kind, message)
            except ApiError as error:
                if may_pass(error):
                    raise
                log.warning("run %d: the backend does not take one of its messages: %s", claim.run_id, error.message)
                if error.code == "lease_lost":
                    break
            count += 1
        messages.unlink(missing_ok=True)
        about.unlink()
        return claim, count
