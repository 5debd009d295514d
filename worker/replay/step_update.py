"""The update that a step made, as a sum: a part for each summand of its gradients, one for momentum, one for weight decay."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from worker.policy.policy import Policy
from worker.ranks.sharding import exchange

Parts = list[Tensor | None]
"""A vector that lies in several tensors, one for each parameter; a part that is None is 0."""


@dataclass(frozen=True)
class Effect:
    """What a summand of the step's loss did; see `backend.contract.replay.Part`."""

    norm: float
    cosine: float | None
    size: float
    share: float


@dataclass
class _Pass:
    """One update on the batch."""

    weights: list[Tensor]  # those that it found; empty while they are in the parameters
    scaled_down: float  # what the gradient was multiplied with before AdamW took it
    gradient: Parts  # after that; what was taken of it is subtracted
    norm: float  # of that
    scale: Parts  # Δθ is linear in the gradient, as AdamW took it: what each coordinate is multiplied with; None: it was not taken


class StepUpdate:
    """Δθ, and how AdamW made it, pass by pass. Made before a step's update, shown each of its passes, and closed after it.

    With the second moments as they were, Δθ is linear in the gradient of each pass. AdamW (Loshchilov and Hutter, 2019, algorithm 2)
    adds Aₖ mₖ in pass k, where Aₖ = −lr / (1 − β₁ᵗ) / (√v̂ₖ + ε); and mₖ holds β₁ᵏ⁻ʲ (1 − β₁) gⱼ of an earlier pass j. So the gradient
    of pass j made (1 − β₁) Sⱼ gⱼ of Δθ, with Sⱼ = Aⱼ + β₁ Sⱼ₊₁, and the momentum of earlier steps made β₁ S₁ m₀.
    """

    def __init__(
        self, policy: Policy, optimizer: torch.optim.AdamW, *, max_grad_norm: float, updates_per_batch: int = 1
    ) -> None:
        self._parameters = [parameter for _, parameter in policy.named_parameters()]
        self._groups = [
            next(group for group in optimizer.param_groups if any(one is parameter for one in group["params"]))
            for parameter in self._parameters
        ]
        self._states = optimizer.state
        self._max_grad_norm, self._updates = max_grad_norm, updates_per_batch
        self._passes: list[_Pass] = []
        self._carried: Parts = [None] * len(self._parameters)  # β₁ m₀
        self._found, self._at = self._copied(), 0

    def _copied(self) -> list[Tensor]:
        return [parameter.detach().clone() for parameter in self._parameters]

    @torch.no_grad()
    def see(self, measured: Mapping[str, float]) -> None:
        """Take over the gradient of the pass that has just been made, and the second moments of the last one."""
        grad_norm = measured["grad_norm"]
        gradient = [parameter.grad for parameter in self._parameters]
        self.clear()
        applied = grad_norm > 0
        last = len(self._passes) + 1 == self._updates
        self._passes.append(
            _Pass(
                weights=self._found,
                scaled_down=min(1.0, self._max_grad_norm / (grad_norm + 1e-6)) if applied else 1.0,
                gradient=gradient,
                norm=norm_of(gradient),
                scale=[
                    self._scale(place, one, last=last) if applied and one is not None else None
                    for place, one in enumerate(gradient)
                ],
            )
        )
        self._found = [] if last else self._copied()

    def _scale(self, place: int, gradient: Tensor, *, last: bool) -> Tensor:
        """Aₖ of a parameter. Of the first pass that moved it, what momentum brought along is kept."""
        group, state = self._groups[place], self._states[self._parameters[place]]
        (first, second), steps = group["betas"], float(state["step"])
        if self._carried[place] is None:
            self._carried[place] = state["exp_avg"].sub(gradient, alpha=1 - first)
        moment: Tensor = state["exp_avg_sq"] if last else state["exp_avg_sq"].clone()
        scale = moment.sqrt_().div_(math.sqrt(1 - second**steps)).add_(group["eps"])
        return scale.reciprocal_().mul_(-group["lr"] / (1 - first**steps))

    @torch.no_grad()
    def close(self) -> None:
        """The step is done. From now on the weights are those that it found, and the optimizer serves for nothing more."""
        first = self._passes[0]
        after = [exchange(one, held) for one, held in zip(self._parameters, first.weights, strict=True)]
        first.weights = []
        self._delta = [now.sub_(one.detach()) for now, one in zip(after, self._parameters, strict=True)]
        self.norm = norm_of(self._delta)
        """‖Δθ‖."""
        later: Parts = [None] * len(self._parameters)
        for one in reversed(self._passes):
            for place, scale in enumerate(one.scale):
                if scale is not None:
                    if (follows := later[place]) is not None:
                        scale.add_(follows, alpha=self._first_beta(place))
                    later[place] = scale
        self.momentum = self._share(
            None if scale is None or carried is None else carried.mul_(scale)
            for scale, carried in zip(later, self._carried, strict=True)
        )
        """The share of what earlier steps had left in the first moments."""
        self._carried.clear()
        self.decay = math.fsum(self._share(self._decayed(one)) for one in self._passes)
        """The share of the weight decay."""

    def _decayed(self, one: _Pass) -> Iterator[Tensor | None]:
        for place, found in enumerate(one.weights or self._parameters):
            rate = self._groups[place]["lr"] * self._groups[place]["weight_decay"]
            yield found.detach() * -rate if rate and one.scale[place] is not None else None

    def clear(self) -> None:
        """Take the gradient out of the parameters."""
        for parameter in self._parameters:
            parameter.grad = None

    def along(self) -> float:
        """⟨gradient in the parameters, Δθ⟩: how much the update changes what has this gradient, to first order."""
        known = zip(self._parameters, self._delta, strict=True)
        return math.fsum(_inner(one.grad, delta) for one, delta in known if one.grad is not None)

    def effect(self, gradient: Callable[[], object], *, take: bool = False) -> Effect:
        """What a summand of the step's loss did. The mean of its gradients over the passes is in the parameters then.

        `gradient` puts its gradient into the parameters, for the weights that are there; it is called for each pass. `take` subtracts
        it from what remains of the pass's own.
        """
        count = len(self._parameters)
        summed: Parts = [None] * count
        made: Parts = [None] * count
        size = shared = 0.0
        for one in self._under_each_pass():
            gradient()
            last = one is self._passes[-1]
            for place, parameter in enumerate(self._parameters):
                if parameter.grad is not None:
                    if take and (rest := one.gradient[place]) is not None:
                        rest.sub_(parameter.grad, alpha=one.scaled_down)
                    made[place] = _sum(made[place], self._made_of(one, place, parameter.grad))
                    summed[place] = _sum(summed[place], parameter.grad)
                if last and (part := made[place]) is not None:  # one tensor after the other: they need no room together
                    size, shared = size + _inner(part, part), shared + _inner(part, self._delta[place])
                    made[place] = None
            self.clear()
        for parameter, total in zip(self._parameters, summed, strict=True):
            parameter.grad = None if total is None else total.div_(len(self._passes))
        length = norm_of(summed)
        return Effect(
            norm=length,
            cosine=-self.along() / (length * self.norm) if length > 0 and self.norm else None,
            size=math.sqrt(size) / self.norm if self.norm else 0.0,
            share=shared / self.norm**2 if self.norm else 0.0,
        )

    def shares(self, losses: Callable[[], Tensor]) -> list[float]:
        """The share of each of several summands of the step's loss, without the rest of their effect; `losses` is called for each pass."""
        found = [self._shares_in(one, losses()) for one in self._under_each_pass()]
        return [math.fsum(of_passes) for of_passes in zip(*found, strict=True)]

    def _shares_in(self, one: _Pass, losses: Tensor) -> list[float]:
        gradients = (
            torch.autograd.grad(loss, self._parameters, retain_graph=True, allow_unused=True) for loss in losses
        )
        return [
            self._share(
                None if values is None else self._made_of(one, place, values) for place, values in enumerate(gradient)
            )
            for gradient in gradients
        ]

    def compared(self, other: Sequence[Tensor]) -> tuple[float, float | None]:
        """The norm of another update, and its cosine with this one; None if one of them is 0."""
        norm = norm_of(other)
        inner = math.fsum(_inner(one, delta) for one, delta in zip(other, self._delta, strict=True))
        return norm, inner / (norm * self.norm) if norm and self.norm else None

    @property
    def remainder(self) -> float:
        """The norm of what was not taken of a pass's gradient, in norms of that, of the pass with the most: rounding, once all of it was."""
        return float(np.max([norm_of(one.gradient) / one.norm if one.norm else 0.0 for one in self._passes]))

    def _under_each_pass(self) -> Iterator[_Pass]:
        """Each pass, while the weights are those that it found; afterwards they are those before the step."""
        for number, one in enumerate(self._passes):
            self._go_to(number)
            yield one
        self._go_to(0)

    def _go_to(self, number: int) -> None:
        if number == self._at:
            return
        new = self._passes[number]
        held = [exchange(one, values) for one, values in zip(self._parameters, new.weights, strict=True)]
        self._passes[self._at].weights, new.weights, self._at = held, [], number

    def _share(self, parts: Iterable[Tensor | None]) -> float:
        if not self.norm:
            return 0.0
        products = (_inner(part, delta) for part, delta in zip(parts, self._delta, strict=True) if part is not None)
        return math.fsum(products) / self.norm**2

    def _first_beta(self, place: int) -> float:
        return float(self._groups[place]["betas"][0])

    def _made_of(self, one: _Pass, place: int, gradient: Tensor) -> Tensor | None:
        """What a summand of a pass's gradient, before it was scaled down, made of Δθ."""
        scale = one.scale[place]
        return None if scale is None else (gradient * scale).mul_(one.scaled_down * (1 - self._first_beta(place)))


def norm_of(parts: Iterable[Tensor | None]) -> float:
    """The Euclidean norm of a vector that lies in several tensors."""
    known = (part for part in parts if part is not None)
    return math.hypot(*(float(torch.linalg.vector_norm(part, dtype=torch.float64)) for part in known))


def _sum(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    """The sum, in the memory of the first."""
    return other if one is None else one if other is None else one.add_(other)


def _inner(one: Tensor, other: Tensor) -> float:
    return float((one * other).sum(dtype=torch.float64))
