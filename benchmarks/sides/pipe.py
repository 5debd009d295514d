"""A side's end of its pipe to the driver: lines of JSON on stdin and stdout."""

import os
import sys
from typing import TypeVar

import torch
from pydantic import BaseModel

Message = TypeVar("Message", bound=BaseModel)


class Pipe:
    """Takes stdout for itself: what libraries print there goes to stderr, and so into the side's log."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def tell(self, message: BaseModel) -> None:
        """Answer the driver."""
        self._out.write(message.model_dump_json() + "\n")
        self._out.flush()

    def asked(self, kind: type[Message]) -> Message:
        """What the driver says next. Where the driver has gone the process ends at once: there is nothing to save."""
        line = sys.stdin.readline()
        if not line:
            os._exit(0)
        return kind.model_validate_json(line)


def peak_memory() -> int | None:
    """The most bytes that this process has held: of a GPU, if it used one, what torch reserved; else what was resident.

    None where the system does not say (Linux does).
    """
    if torch.cuda.is_available() and torch.cuda.max_memory_reserved():
        return int(torch.cuda.max_memory_reserved())
    try:
        with open("/proc/self/status") as status:
            return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    except OSError:
        return None
