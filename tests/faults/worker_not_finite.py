"""A worker whose gradient has an infinity in its second tensor, in one update and later in three in a row."""

import sys
from collections.abc import Sequence

import torch

from worker import optimization
from worker.main import main
from worker.ranks.ranks import Ranks

POISONED = {5, 9, 10, 11}
"""Updates, counted from 1."""

_clipped, _counted = optimization.clipped, []


def clipped(
    parameters: Sequence[tuple[str, torch.nn.Parameter]], most: float, loss: float, ranks: Ranks
) -> tuple[float, str]:
    _counted.append(loss)
    gradient = parameters[1][1].grad
    if len(_counted) in POISONED and gradient is not None:
        gradient.view(-1)[0] = torch.inf
    return _clipped(parameters, most, loss, ranks)


if __name__ == "__main__":
    optimization.clipped = clipped
    sys.exit(main(sys.argv[1:]))
