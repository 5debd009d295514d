"""What the device computed and the host wants to know, sent over once: each single value would hold both up."""

from collections.abc import Callable

import torch
from torch import Tensor

Then = Callable[[Tensor], None]


class Transfers:
    """Values on their way to the host, and what is done with each there, in their order."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Tensor, Then]] = []

    def when_known(self, values: Tensor, then: Then) -> None:
        """Call `then` with the values on the CPU, at the next `fetch`."""
        self._waiting.append((values.detach(), then))

    def fetch(self) -> None:
        """Send everything over, one transfer for each type of number, and do what is to be done."""
        waiting, self._waiting = self._waiting, []
        for dtype in dict.fromkeys(values.dtype for values, _ in waiting):
            same = [(values, then) for values, then in waiting if values.dtype is dtype]
            together = torch.cat([values.reshape(-1) for values, _ in same]).cpu()
            parts = torch.split(together, [values.numel() for values, _ in same])
            for (values, then), part in zip(same, parts, strict=True):
                then(part.view(values.shape))
