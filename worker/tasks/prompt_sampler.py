"""Which prompts a step asks: one after the other in shuffled rounds, by the shares of several sources, or the most learnable first.

Every draw is a function of the seed, the step, and what the run has seen; what it has seen is saved with a checkpoint.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from backend.contract.training import Curriculum
from worker.tasks.items import Item, Items, draw

PRIOR = 0.03
"""Of successes and of failures before anything was seen: most prompts are nearly always or nearly never answered right, so one group
without a difference says much. A dead prompt keeps a sixtieth of a live one's weight; with 1/2, Jeffreys' prior, it would keep a fifth."""
_STREAM = 0x70726F6D70747321  # apart from the permutations, which have the seed and an epoch alone


class PromptSampler:
    """Draws the items of a run; each source has random numbers of its own."""

    def __init__(self, items: Items, seed: int, curriculum: Curriculum | None = None) -> None:
        parts = items.parts or [(items.train, 1.0)]
        self._parts, self._seed = [part for part, _ in parts], seed
        shares = np.array([share for _, share in parts], dtype=np.float64)
        self._ends = (shares / shares.sum()).cumsum()
        self._counts, self._counted = np.zeros(len(parts), dtype=np.int64), 0
        self._learnable = (
            None
            if curriculum is None
            else [Learnability(items, seed, curriculum, part) for part, items in enumerate(self._parts)]
        )

    def draw(self, step: int, *, cursor: int, count: int) -> list[Item]:
        """The items at these positions of the run's endless sequence."""
        sources = self._sources(cursor, count)
        drawn: dict[int, list[Item]] = {}
        for part in set(sources):
            wanted = sources.count(part)
            if self._learnable is not None:
                drawn[part] = self._learnable[part].draw(step, cursor, wanted)
            else:
                before = int(self._counts[part])
                drawn[part] = draw(self._parts[part], cursor=before, count=wanted, seed=self._seed, part=part)
        return [drawn[part].pop(0) for part in sources]

    def see(self, step: int, items: Sequence[Item], successes_P_G: NDArray[np.float64]) -> None:
        """Learn from scored groups how often each item succeeds; (P, G) in [0, 1], NaN where a completion is unscored."""
        for learnability in self._learnable or []:
            learnability.see(step, items, successes_P_G)

    def metrics(self) -> dict[str, float]:
        """`curriculum/seen`, the share of the items that were sampled so far, and `curriculum/success`, their estimated success."""
        if self._learnable is None:
            return {}
        tried = np.concatenate([one.tried for one in self._learnable])
        rates = np.concatenate([one.rates for one in self._learnable])
        seen = tried > 0
        success = float(rates[seen].mean()) if seen.any() else float("nan")
        return {"curriculum/seen": float(seen.mean()), "curriculum/success": success}

    def state(self) -> dict[str, torch.Tensor] | None:
        """What a checkpoint keeps; None if everything follows from the cursor."""
        if self._learnable is None:
            return None
        return {
            f"{part}.{name}": value for part, one in enumerate(self._learnable) for name, value in one.state().items()
        }

    def restore(self, state: Mapping[str, torch.Tensor]) -> None:
        """Go on from a checkpoint."""
        for part, one in enumerate(self._learnable or []):
            one.restore({name.partition(".")[2]: value for name, value in state.items() if name.startswith(f"{part}.")})

    def _sources(self, cursor: int, count: int) -> list[int]:
        """The source of each position. Multiples of the golden ratio fall into the shares as evenly as anything does."""
        if cursor < self._counted:
            self._counts[:], self._counted = 0, 0
        while self._counted < cursor:  # only after a resume is more than the last step left to count
            until = min(cursor, self._counted + 2**20)
            self._counts += np.bincount(self._at(self._counted, until), minlength=len(self._parts))
            self._counted = until
        return [int(part) for part in self._at(cursor, cursor + count)]

    def _at(self, start: int, end: int) -> NDArray[np.int64]:
        offset = np.random.default_rng([self._seed, _STREAM]).random()
        points = (offset + np.arange(start, end) * 0.6180339887498949) % 1.0
        return np.minimum(np.searchsorted(self._ends, points, side="right"), len(self._parts) - 1)


class Learnability:
    """Draws the items of one source by p (1 − p), where p is an item's success rate as far as it is known.

    Rutherford et al. (2024) call that learnability: it is the variance of a success, and 0 for what is always or never right. The
    weight of an item is its posterior mean, ab / ((a + b)(a + b + 1)) with a successes and b failures, three hundredths of each before
    anything was seen; successes between 0 and 1 count by their variance, too. The older an observation, the less it counts.
    """

    def __init__(self, items: Sequence[Item], seed: int, curriculum: Curriculum, part: int = 0) -> None:
        self._items, self._seed, self._curriculum, self._part = items, seed, curriculum, part
        self._places: dict[str, list[int]] = {}
        for place, item in enumerate(items):
            self._places.setdefault(item.id, []).append(place)
        # Of each item: successes (each from 0 to 1), their squares and the scored completions, summed with their age's weight; the step of the newest.
        self._won, self._squares, self.tried = np.zeros((3, len(items)))
        self._when = np.zeros(len(items))
        self._step, self._drawn = -1, np.zeros(0, dtype=np.int64)

    @property
    def rates(self) -> NDArray[np.float64]:
        """The estimated success of each item when it was last seen, from 0 to 1."""
        return (self._won + PRIOR) / (self.tried + 2 * PRIOR)

    def weights(self, step: int) -> NDArray[np.float64]:
        """How likely each item is to be the first of a step; they sum to 1."""
        aged = 0.5 ** ((step - self._when) / self._curriculum.half_life)
        seen = self.tried * aged + 2 * PRIOR
        mean, square = (self._won * aged + PRIOR) / seen, (self._squares * aged + PRIOR) / seen
        learnable = (square - mean**2) * seen / (seen + 1)
        uniform = self._curriculum.uniform
        weights: NDArray[np.float64] = (1 - uniform) * learnable / learnable.sum() + uniform / len(learnable)
        return weights

    def draw(self, step: int, cursor: int, count: int) -> list[Item]:
        """Items by weight, none twice in a step while there are others."""
        if step != self._step:
            self._step, self._drawn = step, np.zeros(0, dtype=np.int64)
        weights = self.weights(step)
        chosen: list[int] = []
        while len(chosen) < count:
            random = np.random.default_rng([self._seed, _STREAM + self._part, step, cursor, len(chosen)])
            # The largest of these is drawn in proportion to the weights, the next among the others, and so on (Gumbel).
            keys = np.log(weights) - np.log(-np.log(random.random(len(weights))))
            if len(self._drawn) < len(weights):
                keys[self._drawn] = -np.inf
            best = np.argsort(-keys, kind="stable")[: count - len(chosen)]
            best = best[np.isfinite(keys[best])]
            chosen += best.tolist()
            self._drawn = np.concatenate([self._drawn, best])
            if len(self._drawn) >= len(weights):
                self._drawn = np.zeros(0, dtype=np.int64)
        return [self._items[place] for place in chosen]

    def see(self, step: int, items: Sequence[Item], successes_P_G: NDArray[np.float64]) -> None:
        """Add what a step showed of those items that are of this source."""
        for item, successes_G in zip(items, successes_P_G, strict=True):
            known_G = successes_G[~np.isnan(successes_G)]
            for place in self._places.get(item.id, ()):
                aged = 0.5 ** ((step - self._when[place]) / self._curriculum.half_life)
                self._won[place] = self._won[place] * aged + known_G.sum()
                self._squares[place] = self._squares[place] * aged + (known_G**2).sum()
                self.tried[place] = self.tried[place] * aged + len(known_G)
                self._when[place] = step

    def state(self) -> dict[str, torch.Tensor]:
        """What was seen of each item, in float64: nothing is rounded between a checkpoint and a resumed run."""
        return {name: torch.from_numpy(value.copy()) for name, value in self._arrays().items()}

    def restore(self, state: Mapping[str, torch.Tensor]) -> None:
        """Take back what `state` gave."""
        for name, value in self._arrays().items():
            value[:] = state[name].cpu().numpy()

    def _arrays(self) -> dict[str, NDArray[np.float64]]:
        return {"won": self._won, "squares": self._squares, "tried": self.tried, "when": self._when}
