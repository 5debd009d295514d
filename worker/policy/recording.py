"""Steps of equal shape, recorded once and played back: a GPU gets the kernels of a whole step by one call instead of five hundred."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable

import torch

Compute = Callable[[], object]
"""Computes a step, and writes what is needed of it to where it always lies. What it returns is not kept."""

_WORTH = 8
"""Steps of a shape that are computed before one is recorded, which takes about as long as that."""
_MOST = 96
"""Recorded steps at once: each holds some memory of the device."""


class CudaGraphs:
    """Recorded as CUDA graphs, which share the memory that steps work in: what one leaves there, the next overwrites."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, compute: Compute) -> Compute:
        """What does the same again, into the same memory. Nothing is computed yet."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            compute()
        return graph.replay


class Recomputation:
    """Computes again, on any device: the code that plays back can be tried without a GPU."""

    def record(self, compute: Compute) -> Compute:
        """The step itself."""
        return compute


Recorder = CudaGraphs | Recomputation


class RecordedSteps:
    """Steps by their shapes; those that come often are recorded, and of these the least recently replayed are dropped first."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._seen: Counter[Hashable] = Counter()
        self._recorded: OrderedDict[Hashable, Compute] = OrderedDict()

    def run(self, shape: Hashable, compute: Compute) -> None:
        """Compute a step of this shape, or play it back. What `compute` reads and writes lies where it lay the first time."""
        if shape not in self._recorded:
            self._seen[shape] += 1
            if self._seen[shape] <= _WORTH:  # which also warms up what a recording must find ready
                compute()
                return
            if len(self._recorded) == _MOST:
                gone, _ = self._recorded.popitem(last=False)
                del self._seen[gone]
            self._recorded[shape] = self._recorder.record(compute)
        self._recorded.move_to_end(shape)
        self._recorded[shape]()
