"""Weights in shards (FSDP2): gathered for the layer that computes, and divided again behind it.

Our own loop reads the weights of transformers' modules and never calls these. FSDP2 gathers where a module is called. So what
computes with a module's weights is handed to the module, which is called with it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar, cast

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers.modeling_layers import GradientCheckpointingLayer

from worker.ranks.ranks import Ranks
from worker.ranks.waiting import WAITING

Result = TypeVar("Result")


def shard(model: nn.Module, ranks: Ranks, device: torch.device) -> None:
    """Divide a model's weights: each decoder layer by itself, and the remaining ones together. Gradients are summed, not averaged.

    To be called before anything keeps its parameters, with the same weights in every process.
    """
    mesh = ranks.mesh(device)
    for module in (*layers_of(model), model):
        _let_through(module)
        sharded = fully_shard(module, mesh=mesh, reshard_after_forward=True)
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)  # gloo knows no sum of scaled gradients
        # Else the next layer's weights are gathered while this one's gradient is computed: two layers at once.
        sharded.set_modules_to_backward_prefetch([sharded])
        # The tensors to gather into are made at the first time. Made in inference mode, as by a sampler, they could not be trained.
        sharded.unshard()
        sharded.reshard()


def layers_of(model: nn.Module) -> list[nn.Module]:
    """Its decoder layers, in the order in which it passes through them."""
    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


def _let_through(module: nn.Module) -> None:
    plain = module.forward

    def forward(*given: object, through: Callable[..., object] | None = None, **named: object) -> object:
        return plain(*given, **named) if through is None else through(*given)

    module.forward = forward


def gathered(module: nn.Module | None, compute: Callable[..., Result], *given: object) -> Result:
    """Compute with a module's own weights, gathered where they lie in shards. Tensors with a gradient are to be among what is given."""
    if not isinstance(module, FSDPModule):
        return compute(*given)

    def counted(*given: object) -> Result:
        WAITING.end()
        result = compute(*given)
        WAITING.begin()
        return result

    # Not by transformers' own call, which would compute a layer a second time for the gradient: our loop does so itself.
    with WAITING.others():
        return cast(Result, nn.Module.__call__(module, *given, through=counted))


def local(values: Tensor) -> Tensor:
    """What this process holds of them, in the same memory."""
    return values.to_local() if isinstance(values, DTensor) else values


def whole(values: Tensor) -> Tensor:
    """All of it, which every process has to ask for."""
    return values.full_tensor() if isinstance(values, DTensor) else values


def as_held(like: Tensor, values: Tensor) -> Tensor:
    """The values as `like` is held: the part of them that this process holds of it, on its device, in its precision."""
    values = values.detach().to(like.device, like.dtype)
    if not isinstance(like, DTensor) or isinstance(values, DTensor):
        return values
    return distribute_tensor(values, like.device_mesh, like.placements, src_data_rank=None)


@torch.no_grad()
def exchange(parameter: nn.Parameter, other: Tensor) -> Tensor:
    """Give the parameter the other values, and return those that it had: by pointer, or in place where FSDP2 reads its own memory."""
    if not isinstance(parameter, DTensor):
        own, parameter.data = parameter.data, other
        return own
    mine, others = local(parameter.detach()), local(other)
    kept = mine.clone()
    mine.copy_(others)
    others.copy_(kept)
    return other


@torch.no_grad()
def add_up(parameters: Iterable[nn.Parameter], ranks: Ranks) -> None:
    """Sum the gradients of parameters that every process has whole, as FSDP2 sums those of the others."""
    everywhere = [one for one in parameters if not isinstance(one, DTensor)]
    if not everywhere:
        return
    known = ranks.gather([one.grad is not None for one in everywhere])
    for parameter, has_one in zip(everywhere, zip(*known, strict=True), strict=True):
        if any(has_one):
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            ranks.add_up(parameter.grad)


def total_norm(gradients: Sequence[Tensor], ranks: Ranks) -> Tensor:
    """The Euclidean norm of gradients as if each were whole."""
    if not ranks.in_shards:
        return torch.nn.utils.get_total_norm(gradients)
    in_parts = [one for one in gradients if isinstance(one, DTensor)]
    everywhere = [one for one in gradients if not isinstance(one, DTensor)]
    # Each part lies on as many processes as there are copies, and counts once.
    own = torch.nn.utils.get_total_norm([local(one) for one in in_parts]) ** 2
    squares = [*ranks.gather(own.cpu())[: ranks.shards], torch.nn.utils.get_total_norm(everywhere).cpu() ** 2]
    return torch.stack(squares).sum().sqrt().to(own.device)
