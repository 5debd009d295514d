"""The value head: PPO's critic, one number for each state of the policy's own network."""

import torch
from torch import Tensor


class ValueHead(torch.nn.Module):
    """V(s) = w · h(s) + b, h the last hidden state; it begins at 0 and expects nothing."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(hidden_size))
        self.bias = torch.nn.Parameter(torch.zeros(()))

    def forward(self, hidden_R_T_H: Tensor) -> Tensor:
        """Values (R, T). In float32 also under autocast, which would round a matrix product to bfloat16."""
        return (hidden_R_T_H.float() * self.weight).sum(-1) + self.bias
