"""Memory of the device that the sampler holds between rollouts: a learner that finds none takes it, and begins again."""

from collections.abc import Callable
from typing import TypeVar

import torch

from worker.failure import out_of_memory
from worker.policy.device import free_bytes, give_back_memory
from worker.policy.policy import bytes_to_come

Done = TypeVar("Done")


class SpareMemory:
    """What a learner on `device` can take where memory runs out."""

    def __init__(
        self,
        device: torch.device,
        optimizer: torch.optim.AdamW,
        remarks: list[str],
        make_room: Callable[[], bool],
    ) -> None:
        """`make_room` frees what the sampler holds, and says whether there was any; `remarks` gets a sentence for the run's log."""
        self._device, self._optimizer, self._remarks, self._make_room = device, optimizer, remarks, make_room

    def once_more(self, work: Callable[[], Done]) -> Done:
        """Do this; once more, without gradients of the first time, if memory ran out and there was some to take.

        Raises what `work` raised if there was none, or if it was not enough.
        """
        try:
            return work()
        except (RuntimeError, MemoryError) as error:
            if not (out_of_memory(error) and self._make_room()):
                raise
        self._optimizer.zero_grad(set_to_none=True)  # the failed work's arrays go only here, after the error
        give_back_memory()
        self._remarks.append("memory ran out: the sampler gave its share back, and the computation began again")
        return work()

    def take_for_moments(self) -> None:
        """Before the optimizer's first step: one that runs out of memory half way could not be repeated."""
        free = free_bytes(self._device)
        if free is not None and free < bytes_to_come(self._optimizer) and self._make_room():
            give_back_memory()
