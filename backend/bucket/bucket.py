"""An S3-compatible bucket as a store of checkpoints, through pyarrow, which backend and worker have anyway.

    <prefix>/store-id/ab12cd34                     tells this store from others
    <prefix>/run-7/pairs.jsonl                     what a run keeps beside its checkpoints
    <prefix>/run-7/step-20-attempt-1/model/…
    <prefix>/run-7/step-20-attempt-1/manifest.json written last and removed first: without it there is no checkpoint

Credentials, region and endpoint come from where S3 clients look for them: AWS_* in the environment, ~/.aws, the machine's role.
"""

import hashlib
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

MANIFEST = "manifest.json"
COPIES = "bucket"
"""The folder of a home in which a worker keeps what it saved to the bucket, or fetched from it."""
IDS = "store-id"
_ADDRESS = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[\w.-]+)*")
_CHUNK = 16 * 2**20
_IN_MEMORY = 4 * _CHUNK  # of an upload: pyarrow would take in a whole file that comes faster than the network takes it
_CONNECT_SECONDS, _SILENCE_SECONDS = 10, 30
_SETTLE_SECONDS = 2.0  # times of objects are in whole seconds, and a write is done within another
_OLD_SECONDS = 3600.0  # of an id beside which no other comes any more, also by a clock that is wrong
# What says that the same may work later; all else is a refusal, which somebody has to mend.
_AWAY = re.compile(
    r"NETWORK_CONNECTION|REQUEST_TIMEOUT|SLOW_DOWN|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|HTTP status 5\d\d"
)


def _address(text: str) -> str:
    address = text.rstrip("/")
    if not _ADDRESS.fullmatch(address) or ".." in address:
        # the text itself is not repeated: somebody may have put a key into it
        text = "a bucket is named as s3://bucket/prefix, in letters, digits, dots, - and _; its key comes from AWS_* in the environment"
        raise ValueError(text)
    return address


Address = Annotated[str, Field(max_length=180), AfterValidator(_address)]
"""Where checkpoints lie beside the worker's own disk: s3://bucket/prefix."""


class BucketTrouble(Exception):
    """The bucket is `away`, or refuses: the message says which, and what it said."""

    def __init__(self, message: str, *, away: bool) -> None:
        super().__init__(message)
        self.away = away


class Damaged(Exception):
    """What lies in the bucket is not what was saved: the message says what."""


@dataclass(frozen=True)
class Bucket:
    """The objects below one prefix; keys are relative to it. What does not work raises BucketTrouble, a key that is not there FileNotFoundError."""

    address: str

    def name(self) -> str:
        """The store's name: its address and a random id that lies in it, since two servers may have buckets of one name.

        Of workers that are the first at the same moment each leaves an id, and the oldest one counts, once no other comes.
        """
        seen = None
        while True:
            found = sorted((one.mtime_ns, one.path) for one in self._files(IDS))
            if not found:
                with self._open(f"{IDS}/{secrets.token_hex(4)}", write=True) as sink:
                    sink.write(b"tells this store from others")
            elif found == seen or time.time() - found[-1][0] / 1e9 > _OLD_SECONDS:
                return f"{self.address}#{found[0][1].rpartition('/')[2]}"
            else:
                seen = found
                time.sleep(_SETTLE_SECONDS)

    def read(self, key: str) -> bytes:
        """A small object."""
        return b"".join(self.chunks(key))

    def chunks(self, key: str) -> Iterator[bytes]:
        """An object, in pieces of 16 MiB."""
        with self._open(key) as source:
            while True:
                with self._in_words():
                    chunk = source.read(_CHUNK)
                if not chunk:
                    return
                yield chunk

    def put(self, key: str, file: Path, on_bytes: Callable[[int], None] = lambda count: None) -> None:
        """Store a file. Nobody sees the object before it is whole, unless `on_bytes` raises."""
        waiting = 0
        with file.open("rb") as source, self._open(key, write=True) as sink:
            while chunk := source.read(_CHUNK):
                with self._in_words():
                    sink.write(chunk)
                    waiting += len(chunk)
                    if waiting >= _IN_MEMORY:
                        sink.flush()
                        waiting = 0
                on_bytes(len(chunk))

    def keys(self, folder: str) -> list[str]:
        """All keys below a folder."""
        return [one.path.removeprefix(self._path("")) for one in self._files(folder)]

    def _files(self, folder: str) -> list[Any]:
        client = _s3()
        from pyarrow.fs import FileSelector, FileType

        with self._in_words():
            found = client.get_file_info(FileSelector(self._path(folder), recursive=True, allow_not_found=True))
        return [one for one in found if one.type == FileType.File]

    def remove(self, folder: str) -> None:
        """Remove all below a folder, manifests first: a checkpoint whose removal is cut short is none."""
        for key in self.keys(folder):
            if key.endswith(f"/{MANIFEST}"):
                with self._in_words(), suppress(FileNotFoundError):
                    _s3().delete_file(self._path(key))
        with self._in_words(), suppress(FileNotFoundError):
            _s3().delete_dir(self._path(folder))

    def manifest(self, checkpoint: str, sha256: str | None) -> bytes:
        """The manifest of a checkpoint. Raises Damaged if it is gone, or another than the one with this hash."""
        try:
            content = self.read(f"{checkpoint}/{MANIFEST}")
        except FileNotFoundError:
            raise Damaged("it is not in the bucket") from None
        if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
            raise Damaged(f"hash of {MANIFEST} in the bucket differs")
        return content

    def _path(self, key: str) -> str:
        return f"{self.address.removeprefix('s3://')}/{key}"

    @contextmanager
    def _open(self, key: str, *, write: bool = False) -> Iterator[Any]:
        with self._in_words():
            opened = _s3().open_output_stream(self._path(key)) if write else _s3().open_input_stream(self._path(key))
        yield opened
        with self._in_words():
            opened.close()

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno is not None:  # this machine's own
                raise
            said = str(error).partition("\n")[0]
            away = _AWAY.search(said) is not None
            raise BucketTrouble(
                f"{self.address} {'does not answer' if away else 'refuses'}: {said}", away=away
            ) from error


@cache
def _s3() -> Any:
    """The client of this process. Nothing of it is imported before a bucket is used."""
    try:
        from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem
    except ImportError:
        text = "this pyarrow cannot speak to S3: install the one of PyPI (pip install --force-reinstall pyarrow)"
        raise BucketTrouble(text, away=False) from None
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    # With an endpoint of its own the region is but a part of the signature; without one, pyarrow looks for it.
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or ("us-east-1" if endpoint else None)
    return S3FileSystem(
        endpoint_override=endpoint,
        region=region,
        connect_timeout=_CONNECT_SECONDS,
        request_timeout=_SILENCE_SECONDS,
        allow_delayed_open=True,  # a small object is one request
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=3),
    )
