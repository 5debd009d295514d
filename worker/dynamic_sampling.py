"""DAPO's dynamic sampling: dead groups are replaced by groups of further prompts, so that every group has a signal."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from backend.contract.advantage import Advantage
from worker.credit import live_groups
from worker.rewards.scoring import Scores
from worker.rollout.rollout import Rollout


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


def fill_with_live(
    first: Scored, more: Callable[[int, int], Scored], chosen: Advantage, *, rounds: int
) -> tuple[Scored, Scored | None]:
    """The batch with its dead groups replaced, and the groups that were taken out (None: there were none).

    `more(count, first_group)` samples and scores groups of further prompts. A replacement takes the place of the group that
    it replaces. After `rounds` rounds what is dead stays, so that a batch is never smaller than it was asked to be.
    """
    batch, filtered = first, None
    sampled = len(first.rollout.items_P)
    for _ in range(rounds):
        dead = _dead(batch, chosen)
        if not dead:
            break
        fresh = more(len(dead), sampled)
        sampled += len(dead)
        useless = _dead(fresh, chosen)
        useful = [p for p in range(len(dead)) if p not in useless]
        replaced = dead[: len(useful)]
        order = list(range(len(batch.rollout.items_P)))
        for place, p in zip(replaced, useful, strict=True):
            order[place] = len(order) + p
        # Of the fresh groups, the dead ones were sampled for nothing; so were those that the useful ones replace.
        gone = batch.groups(replaced) + fresh.groups(useless)
        batch = (batch + fresh).groups(order)
        filtered = gone if filtered is None else filtered + gone
    return batch, filtered


def _dead(scored: Scored, chosen: Advantage) -> list[int]:
    """The groups that tell the chosen estimator nothing."""
    live_P = live_groups(chosen, scored.scores, scored.rollout.group_size).tolist()
    return [p for p, live in enumerate(live_P) if not live]
