"""A worker that is killed at one moment of a checkpoint's upload, the second one of its attempt; KILLED_WHEN says which."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backend.bucket.bucket import MANIFEST, Bucket
from worker.main import main
from worker.uploads import Uploads

# Before the first object, between two of them, before the manifest, while that is on its way, and before the backend hears of it.
MOMENTS = ("first", "half", "last", "manifest", "registered")

_put, _upload = Bucket.put, Uploads._upload
_moment = os.environ.get("KILLED_WHEN", "")
_steps: list[int] = []
_objects = 0


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def upload(self: Uploads, step: int, *given: Any) -> bool:
    _steps.append(step)
    return _upload(self, step, *given)


def put(self: Bucket, key: str, file: Path, on_bytes: Callable[[int], None] = lambda count: None) -> None:
    global _objects
    if len(_steps) < 2:
        _put(self, key, file, on_bytes)
        return
    last = key.endswith(f"/{MANIFEST}")
    if _moment == "first" or (_moment == "half" and _objects == 2) or (_moment == "last" and last):
        _die()
    _put(self, key, file, _die if _moment == "manifest" and last else on_bytes)
    _objects += 1
    if last:
        _die()


if __name__ == "__main__":
    Bucket.put, Uploads._upload = put, upload  # type: ignore[method-assign]
    sys.exit(main(sys.argv[1:]))
