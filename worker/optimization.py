"""The optimizer under every learner: AdamW with its schedule, the memory it may ask for, and the updates that it skips."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import torch

from backend.contract.training import Optimizer
from worker.checkpoint import Trained
from worker.errors import RunFailure
from worker.failure import out_of_memory
from worker.policy.device import abilities, free_bytes, give_back_memory
from worker.policy.policy import Policy, bytes_to_come
from worker.ranks.ranks import ALONE, Ranks
from worker.ranks.sharding import add_up, local, total_norm

Done = TypeVar("Done")

_MOST_IN_A_ROW = 3


class Optimization:
    """AdamW over what is trained.

    The sampler holds memory of the device between rollouts: a learner that finds none takes it, and begins again.
    """

    def __init__(
        self,
        trained: Trained,
        settings: Optimizer,
        *,
        steps: int,
        remarks: list[str],
        make_room: Callable[[], bool],
        groups: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        """`groups` are AdamW's, each with its full learning rate; without them all parameters have the settings' rate.

        `make_room` frees what the sampler holds, and says whether there was any; `remarks` gets a sentence for the run's log.
        """
        self._trained, self._settings, self._steps = trained, settings, steps
        self._remarks, self._make_room = remarks, make_room
        everything = [parameter for _, parameter in trained.named_parameters()]
        self.adamw = torch.optim.AdamW(
            [*groups] if groups else [{"params": everything, "lr": settings.learning_rate}],
            weight_decay=settings.weight_decay,
            fused=abilities(trained.device).fused_optimizer,
        )
        if isinstance(trained, Policy):
            trained.bytes_to_come = partial(bytes_to_come, self.adamw)
        self._full_rates = [group["lr"] for group in self.adamw.param_groups]
        self._skipped_in_a_row = 0

    def step(self, step: int, loss: float) -> tuple[dict[str, float], str]:
        """Apply the gradients of an update in step `step`. Returns its metrics, and what was not finite, in words; "" if all was."""
        named, ranks = self._trained.named_parameters(), self._trained.ranks
        if not ranks.alone:
            add_up([parameter for _, parameter in named], ranks)
        grad_norm, fault = clipped(named, self._settings.max_grad_norm, loss, ranks)
        rate = self._settings.rate_at(step, steps=self._steps)
        if grad_norm > 0:  # else nothing was learned, and momentum and decay do not act alone (decision 0027)
            for group, full_rate in zip(self.adamw.param_groups, self._full_rates, strict=True):
                group["lr"] = full_rate * rate / self._settings.learning_rate
            self._take_for_moments()
            self.adamw.step()
            if isinstance(self._trained, Policy):
                self._trained.updates += 1
        return {"loss": loss, "grad_norm": grad_norm, "learning_rate": rate}, fault

    def count(self, step: int, *, fault: str, loss: float) -> None:
        """Note what was not finite in a whole step. Raises RunFailure `diverged` at the third such step in a row."""
        self._skipped_in_a_row = self._skipped_in_a_row + 1 if fault else 0
        if self._skipped_in_a_row >= _MOST_IN_A_ROW:
            raise RunFailure(
                "diverged",
                f"The gradient was not finite in {self._skipped_in_a_row} steps in a row, the last being step {step} "
                f"(loss {loss}; first: {fault}). None of these updates was applied: start again from the last checkpoint "
                f"with a lower learning rate than {self._settings.learning_rate:g}.",
            )

    def once_more(self, work: Callable[[], Done]) -> Done:
        """Do this; do it once more, without the gradients of the first time, if memory ran out and the sampler held some.

        Raises what `work` raised if there was none, or if it was not enough.
        """
        try:
            return work()
        except (RuntimeError, MemoryError) as error:
            # Others would wait for a process that begins again.
            if not (out_of_memory(error) and self._trained.ranks.alone and self._make_room()):
                raise
        self.adamw.zero_grad(set_to_none=True)  # the failed work's arrays go only here, after the error
        give_back_memory()
        self._remarks.append("memory ran out: the sampler gave its share back, and the computation began again")
        return work()

    def _take_for_moments(self) -> None:
        """Before the optimizer's first step: one that runs out of memory half way could not be repeated."""
        free = free_bytes(self._trained.device)
        if free is not None and free < bytes_to_come(self.adamw) and self._make_room():
            give_back_memory()


def clipped(
    parameters: Sequence[tuple[str, torch.nn.Parameter]], most: float, loss: float, ranks: Ranks = ALONE
) -> tuple[float, str]:
    """Scale the gradient down to the norm `most`. Returns its norm before that, and what was not finite, in words; "" if all was.

    A gradient that is not finite stays as it is: scaled by a norm that is NaN, all tensors would look alike.
    """
    known = [(name, parameter) for name, parameter in parameters if parameter.grad is not None]
    gradients = [parameter.grad for _, parameter in known if parameter.grad is not None]
    norm = float(total := total_norm(gradients, ranks))
    if math.isfinite(norm) and math.isfinite(loss):
        for gradient in gradients if not ranks.alone else ():
            local(gradient).mul_(torch.clamp(most / (total + 1e-6), max=1.0))
        if ranks.alone and norm + 1e-6 > most:
            torch.nn.utils.clip_grads_with_norm_([parameter for _, parameter in known], most, total)
        return norm, ""
    wrong = {name for (name, _), one in zip(known, gradients, strict=True) if not local(one).isfinite().all()}
    wrong = set().union(*ranks.gather(wrong))
    for name, _ in known:
        if name in wrong:
            return math.nan, f"the gradient of {name}"
    return math.nan, "the loss" if not math.isfinite(loss) else "the norm of the gradient"
