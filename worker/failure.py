"""What a failed run says: from an error to a code for programs and words for the person who started it."""

import errno
import os
import re
import shutil
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError

from backend.contract.protocol import Fail
from backend.contract.records import RunError
from backend.contract.spool import Damaged, Refused, SpoolFull
from worker.errors import RunFailure

_ALLOC_FAILED = "CUBLAS_STATUS_ALLOC_FAILED"
# As torch writes them for CUDA's runtime, driver and libraries; as Triton does; and as CUDA names its errors itself.
_OF_CUDA = re.compile(
    r"cuda[ _]?((driver|runtime) )?error|\[cuda\]|cu(blas|dnn|dss|fft|solver|sparse)( frontend)?( error|_status)",
    re.IGNORECASE,
)
# What libraries raise when a model's files are missing or damaged: they compute with whatever a config.json holds. A mistake of our
# own may look the same, so the details say where it came from.
_UNREADABLE = (
    OSError,
    AssertionError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    ImportError,
    RuntimeError,
    SafetensorError,
    StrictDataclassError,
)
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def failure(attempt: int, error: Exception, home: Path | None = None) -> Fail:
    """What the person reads. Only a crash is tried again: a mistake would be made again."""
    trace = _trace(error)
    if isinstance(error, RunFailure):
        return Fail(attempt=attempt, error=RunError(code=error.code, message=error.message, details=error.details))
    if isinstance(error, Refused):
        message = f"The backend refused what the worker reported: {error}."
        return Fail(attempt=attempt, error=RunError(code="report_refused", message=message))
    if isinstance(error, Damaged):
        message = f"A report was damaged on the worker's disk before it was sent: {error}. The run goes on from its last checkpoint."
        return Fail(attempt=attempt, error=RunError(code="spool_damaged", message=message), retryable=True)
    if isinstance(error, SpoolFull):
        message = f"The backend was away for too long: {error}. Retry: the run goes on from its last checkpoint."
        return Fail(attempt=attempt, error=RunError(code="spool_full", message=message))
    if device_lost(error):
        said = str(error).partition("\n")[0]
        message = (
            "The GPU reported an error after which this process can compute nothing more there. The worker starts again with a "
            f"clean process, and the run goes on from its last checkpoint. ({said})"
        )
        if _ALLOC_FAILED in said:
            message = f"The GPU's memory was full, or nearly: if this comes again, lower optimizer.micro_batch_tokens. {message}"
        return Fail(attempt=attempt, error=RunError(code="device_lost", message=message, details=trace), retryable=True)
    if out_of_memory(error):
        said = str(error).partition("\n")[0] or type(error).__name__  # Python's own MemoryError says nothing
        message = (
            "The device ran out of memory. Lower optimizer.micro_batch_tokens, or group_size or max_new_tokens where "
            f"completions are sampled, or turn on model.gradient_checkpointing. ({said})"
        )
        return Fail(attempt=attempt, error=RunError(code="out_of_memory", message=message, details=trace))
    if _disk_full(error):
        where = f": {home.resolve()}, {shutil.disk_usage(home).free:,} bytes free" if home and home.exists() else ""
        message = (
            f"The worker's disk is full{where}. Free some space and retry: the run goes on from its last checkpoint."
        )
        return Fail(attempt=attempt, error=RunError(code="disk_full", message=message, details=trace))
    message = f"The worker met an error that it did not expect: {type(error).__name__}: {error}"
    return Fail(attempt=attempt, error=RunError(code="crash", message=message, details=trace), retryable=True)


def _trace(error: Exception) -> str:
    return "".join(traceback.format_exception(error))


def out_of_memory(error: Exception) -> bool:
    """Whether the device, or the machine, has no memory left."""
    # A CPU's allocator, Apple's and the CUDA driver say it in words only.
    said = str(error).lower().replace("_", " ")  # CUDA's own name has the one, its words the other
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and any(words in said for words in ("can't allocate memory", "out of memory"))
    )


def device_lost(error: Exception) -> bool:
    """Whether this process cannot compute on its GPU any more: CUDA fails every call that follows such an error."""
    if out_of_memory(error):
        return False
    return isinstance(error, torch.AcceleratorError) or (
        isinstance(error, RuntimeError | torch.cuda.DeferredCudaCallError) and bool(_OF_CUDA.search(str(error)))
    )


def of_device(error: Exception) -> bool:
    """Whether it says something of the device, and nothing of what was computed or loaded there."""
    return out_of_memory(error) or device_lost(error)


@contextmanager
def opening(refusal: Callable[[str, str], RunFailure]) -> Iterator[None]:
    """Errors of a library that opens a model become the refusal, made of their first line and the traceback.

    An error of the device or of a full disk says nothing of the model, and is raised as it is.
    """
    try:
        yield
    except _UNREADABLE as error:
        if of_device(error) or _disk_full(error):
            raise
        first, *more = (str(error).strip() or type(error).__name__).splitlines()
        said = f"{first} {more[0].strip()}" if more and first.endswith(":") else first
        raise refusal(said, _trace(error)) from error


def _disk_full(error: Exception) -> bool:
    if isinstance(error, SafetensorError):  # it has no errno
        return any(os.strerror(number) in str(error) for number in _NO_SPACE)
    return isinstance(error, OSError) and error.errno in _NO_SPACE
