"""A rollout with its scores, which can be taken apart and put together group by group."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from worker.rewards.scoring import Sample, Scores
from worker.rollout.engine import Completion
from worker.rollout.rollout import Rollout
from worker.tasks.items import Item


@dataclass(frozen=True)
class Scored:
    """A rollout and its scores."""

    rollout: Rollout
    scores: Scores

    @property
    def rewards_P_G(self) -> Tensor:
        """In float64, so that what a person recomputes from the rewards on the screen is what trained the policy."""
        return torch.from_numpy(self.scores.total).reshape(-1, self.rollout.group_size)

    def groups(self, indices: Sequence[int]) -> "Scored":
        """These groups alone, in this order."""
        size = self.rollout.group_size
        rows = [p * size + g for p in indices for g in range(size)]
        rollout = replace(
            self.rollout,
            items_P=[self.rollout.items_P[p] for p in indices],
            prompt_texts_P=[self.rollout.prompt_texts_P[p] for p in indices],
            prompt_ids_P=[self.rollout.prompt_ids_P[p] for p in indices],
            completions_R=[self.rollout.completions_R[row] for row in rows],
        )
        return Scored(rollout, Scores([self.scores.components[row] for row in rows], self.scores.total[rows]))

    def __add__(self, other: "Scored") -> "Scored":
        mine, others = self.rollout, other.rollout
        rollout = replace(
            mine,
            items_P=[*mine.items_P, *others.items_P],
            prompt_texts_P=[*mine.prompt_texts_P, *others.prompt_texts_P],
            prompt_ids_P=[*mine.prompt_ids_P, *others.prompt_ids_P],
            completions_R=[*mine.completions_R, *others.completions_R],
        )
        components = [*self.scores.components, *other.scores.components]
        return Scored(rollout, Scores(components, np.concatenate([self.scores.total, other.scores.total])))


def group_samples(item: Item, completions: Sequence[Completion]) -> list[Sample]:
    """What the scorer gets of one group."""
    return [Sample(completion.text, len(completion.ids), item) for completion in completions]
