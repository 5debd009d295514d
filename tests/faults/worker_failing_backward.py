"""A worker whose first process meets an error of CUDA in its fourth backward pass, or asks for too much memory in its first.

The process that follows it does not. TEST_BACKWARD says which.
"""

import os
import sys
from itertools import count

import torch

from worker.main import main

ERRORS = {
    "assert": torch.AcceleratorError("CUDA error: device-side assert triggered"),
    "access": torch.AcceleratorError("CUDA error: an illegal memory access was encountered"),
    "launch": RuntimeError("CUDA error: unspecified launch failure"),
    "cublas": RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( handle )`"),
    "cublas-alloc": RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    "cudnn": RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
}
TRIED = 2**50
"""Bytes, as large a gradient as no machine can hold."""
_backward, _calls = torch.Tensor.backward, count(1)


def backward(self: torch.Tensor, *given: object, **named: object) -> None:
    """The real one, three times."""
    which = os.environ["TEST_BACKWARD"]
    if which == "memory":
        torch.empty(TRIED, dtype=torch.uint8)
    if next(_calls) == 4:
        raise ERRORS[which]
    _backward(self, *given, **named)  # type: ignore[arg-type]


if __name__ == "__main__":
    torch.Tensor.backward = backward  # type: ignore[method-assign]
    sys.exit(main(sys.argv[1:]))
