"""A worker whose first process meets an error of CUDA in its fourth backward pass; the process that follows it does not."""

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
_backward, _calls = torch.Tensor.backward, count(1)


def backward(self: torch.Tensor, *given: object, **named: object) -> None:
    """The real one, three times."""
    if next(_calls) == 4:
        raise ERRORS[os.environ["TEST_CUDA_ERROR"]]
    _backward(self, *given, **named)  # type: ignore[arg-type]


if __name__ == "__main__":
    torch.Tensor.backward = backward  # type: ignore[method-assign]
    sys.exit(main(sys.argv[1:]))
