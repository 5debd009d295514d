"""A worker whose first process asks for more memory than there is, in the backward pass; the process that follows it does not."""

import sys

import torch

from worker.main import main

TRIED = 2**50
"""Bytes."""


def backward(self: torch.Tensor, *_: object, **__: object) -> None:
    """As large a gradient as no machine can hold."""
    torch.empty(TRIED, dtype=torch.uint8)


if __name__ == "__main__":
    torch.Tensor.backward = backward  # type: ignore[method-assign]
    sys.exit(main(sys.argv[1:]))
