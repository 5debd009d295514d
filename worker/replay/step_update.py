"""The update that a step made, as a sum: a part for each summand of its gradient, one for momentum, one for weight decay."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from worker.policy.policy import Policy
from worker.ranks.sharding import exchange


@dataclass(frozen=True)
class Effect:
    """What a summand of the step's gradient did; see `backend.contract.replay.Part`."""

    norm: float
    cosine: float | None
    size: float
    share: float


class StepUpdate:
    """Δθ, and the moments with which AdamW made it. Made right after a step; from then on the weights are those before it."""

    def __init__(
        self,
        policy: Policy,
        optimizer: torch.optim.AdamW,
        before: Sequence[Tensor],
        *,
        grad_norm: float,
        max_grad_norm: float,
    ) -> None:
        """`before` are the weights that the step found, and are taken over; its gradient is still in the parameters."""
        self._parameters = [parameter for _, parameter in policy.named_parameters()]
        self._groups = {id(one): group for group in optimizer.param_groups for one in group["params"]}
        self._states = optimizer.state
        self.scaled_down = min(1.0, max_grad_norm / (grad_norm + 1e-6)) if grad_norm > 0 else 1.0
        """What the gradient was multiplied with before AdamW took it."""
        self._remainder: list[Tensor | None] = [one.grad for one in self._parameters]
        self._gradient_norm = norm_of(one for one in self._remainder if one is not None)
        for parameter in self._parameters:
            parameter.grad = None
        after = [exchange(one, held) for one, held in zip(self._parameters, before, strict=True)]
        self._delta = [held.sub_(one.detach()) for held, one in zip(after, self._parameters, strict=True)]
        self.norm = norm_of(self._delta)
        """‖Δθ‖."""

    def along(self) -> float:
        """⟨gradient in the parameters, Δθ⟩: how much the update changes what has this gradient, to first order."""
        known = zip(self._parameters, self._delta, strict=True)
        return math.fsum(_inner(one.grad, delta) for one, delta in known if one.grad is not None)

    def take(self) -> Effect:
        """What the gradient that is in the parameters did, a summand of the step's; it is subtracted from the remainder."""
        with torch.no_grad():
            for one, rest in zip(self._parameters, self._remainder, strict=True):
                if one.grad is not None and rest is not None:
                    rest.sub_(one.grad, alpha=self.scaled_down)
        return self.effect()

    def effect(self) -> Effect:
        """What the gradient that is in the parameters did, if it is a summand of the step's."""
        inner, size, shared = self.along(), 0.0, 0.0
        gradients = [one.grad for one in self._parameters]
        for place, (parameter, gradient) in enumerate(zip(self._parameters, gradients, strict=True)):
            if gradient is None:
                continue
            delta = self._delta[place]
            if self.norm:
                part = self._made_of(parameter, gradient, self.scaled_down * (1 - self._betas(parameter)[0]))
                size += _inner(part, part)
                shared += _inner(part, delta)
        length = norm_of(one for one in gradients if one is not None)
        known = length > 0 and self.norm > 0
        return Effect(
            norm=length,
            cosine=-inner / (length * self.norm) if known else None,
            size=math.sqrt(size) / self.norm if known else 0.0,
            share=shared / self.norm**2 if known else 0.0,
        )

    def share_of(self, gradient: Sequence[Tensor | None]) -> float:
        """The share of a summand of the step's gradient, without the rest of its effect."""
        return self._share(
            None if values is None else self._made_of(one, values, self.scaled_down * (1 - self._betas(one)[0]))
            for one, values in zip(self._parameters, gradient, strict=True)
        )

    def compared(self, other: Sequence[Tensor]) -> tuple[float, float | None]:
        """The norm of another update, and its cosine with this one; None if one of them is 0."""
        norm = norm_of(other)
        inner = math.fsum(_inner(one, delta) for one, delta in zip(other, self._delta, strict=True))
        return norm, inner / (norm * self.norm) if norm and self.norm else None

    @property
    def remainder(self) -> float:
        """The norm of what was not taken of the step's gradient, in norms of that: rounding, once all of it was."""
        return (
            norm_of(one for one in self._remainder if one is not None) / self._gradient_norm
            if self._gradient_norm
            else 0.0
        )

    @property
    def of_moment(self) -> float:
        """The share of AdamW's first moment, which holds the step's own gradient and the momentum of those before."""
        return self._share(
            self._made_of(one, self._states[one]["exp_avg"], 1.0) if one in self._states else None
            for one in self._parameters
        )

    @property
    def of_decay(self) -> float:
        """The share of the weight decay."""
        rates = [self._groups[id(one)]["lr"] * self._groups[id(one)]["weight_decay"] for one in self._parameters]
        return self._share(
            one.detach() * -rate if rate and one in self._states else None
            for rate, one in zip(rates, self._parameters, strict=True)
        )

    def _share(self, parts: Iterator[Tensor | None]) -> float:
        if not self.norm:
            return 0.0
        products = (_inner(part, delta) for part, delta in zip(parts, self._delta, strict=True) if part is not None)
        return math.fsum(products) / self.norm**2

    def _betas(self, parameter: Tensor) -> tuple[float, float]:
        first, second = self._groups[id(parameter)]["betas"]
        return first, second

    def _made_of(self, parameter: Tensor, values: Tensor, factor: float) -> Tensor:
        """−lr × factor × values / (1 − β₁ᵗ) / (√v̂ + ε): linear in the values (AdamW: Loshchilov and Hutter, 2019, algorithm 2)."""
        group, state, (first, second) = self._groups[id(parameter)], self._states[parameter], self._betas(parameter)
        steps = float(state["step"])
        scale = state["exp_avg_sq"].sqrt().div_(math.sqrt(1 - second**steps)).add_(group["eps"])
        return values.div(scale).mul_(-group["lr"] * factor / (1 - first**steps))


def norm_of(parts: "Iterator[Tensor] | Sequence[Tensor]") -> float:
    """The Euclidean norm of a vector that lies in several tensors."""
    return math.hypot(*(float(torch.linalg.vector_norm(part, dtype=torch.float64)) for part in parts))


def _inner(one: Tensor, other: Tensor) -> float:
    return float((one * other).sum(dtype=torch.float64))
