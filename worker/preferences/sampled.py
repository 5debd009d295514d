"""Pairs from the model's own completions: groups are sampled and scored, and the best of each stands against its worst."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from backend.contract.preference import SampledPairs
from worker.algorithms.advantages import group_statistics
from worker.groups import GroupSampler, Scored
from worker.preferences.pairs import Pair, Pairs, Response
from worker.rollout.draws import Draws
from worker.rollout.engine import Completion
from worker.tasks.items import Item, Items, draw, held_out


def sample_pairs(
    config: SampledPairs,
    sampler: GroupSampler,
    items: Items,
    *,
    seed: int,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Pairs:
    """Pairs to train on from the task's training items, and others from its held-out items; both depend on `seed` alone.

    `on_progress` gets the finished completions and their total, again while they are scored, and may raise.
    """
    train = draw(items.train, cursor=0, count=config.prompts, seed=seed)
    other = held_out(items, config.held_out_prompts)
    total = (len(train) + len(other)) * config.group_size

    def pairs_of(some: Sequence[Item], split: int, before: int) -> list[Pair]:
        scored = sampler.sample_and_score(
            some,
            config.group_size,
            config.decoding,
            Draws(seed, "sample", split),
            on_progress=lambda phase, done, of: on_progress(before + (of if phase == "reward" else done), total),
        )
        return _pairs(scored)

    made = Pairs(pairs_of(train, 0, 0), pairs_of(other, 1, len(train) * config.group_size), undecided=0)
    return replace(made, undecided=len(train) + len(other) - len(made.train) - len(made.held_out))


def _pairs(scored: Scored) -> list[Pair]:
    """The best of each group against its worst; none of a group in which nothing is better than anything else."""
    rollout, size = scored.rollout, scored.rollout.group_size
    rewards_P_G = scored.scores.total.reshape(-1, size)
    pairs = []
    for p in np.flatnonzero(group_statistics(rewards_P_G).live_P).tolist():
        item, group = rollout.items_P[p], rollout.completions_R[p * size : (p + 1) * size]
        best, worst = (group[int(of(rewards_P_G[p]))] for of in (np.nanargmax, np.nanargmin))
        pairs.append(Pair(item.id, item.question, item.messages, _response(best), _response(worst)))
    return pairs


def _response(completion: Completion) -> Response:
    return Response(completion.text, tuple(completion.ids))
