"""Pairs from the model's own completions: groups are sampled and scored, and the best of each stands against its worst."""

from collections.abc import Callable, Sequence

import numpy as np

from backend.contract.preference import SampledPairs
from worker.algorithms.advantages import group_statistics
from worker.policy.policy import Policy
from worker.preferences.pairs import Pair, Pairs, Response
from worker.rewards.scoring import RewardScorer
from worker.rollout.draws import Draws
from worker.rollout.engine import Completion, Request
from worker.rollout.rollout import Rollout
from worker.rollout.sampler import NativeEngine
from worker.tasks.items import Item, Items, draw, held_out
from worker.trainer import samples_of


def sample_pairs(
    config: SampledPairs,
    policy: Policy,
    items: Items,
    scorer: RewardScorer,
    *,
    seed: int,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Pairs:
    """Pairs to train on from the task's training items, and others from its held-out items; both depend on `seed` alone.

    `on_progress` gets the finished completions and their total, again while they are scored, and may raise.
    """
    asked = draw(items.train, cursor=0, count=config.prompts, seed=seed)
    apart = held_out(items, config.held_out_prompts)
    first, total = len(asked) * config.group_size, (len(asked) + len(apart)) * config.group_size
    draws = [Draws(seed, "sample", split) for split in (0, 1)]
    train = _pairs(config, policy, asked, scorer, draws[0], lambda done: on_progress(done, total))
    other = _pairs(config, policy, apart, scorer, draws[1], lambda done: on_progress(first + done, total))
    return Pairs(train, other, undecided=len(asked) + len(apart) - len(train) - len(other))


def _pairs(
    config: SampledPairs,
    policy: Policy,
    items: Sequence[Item],
    scorer: RewardScorer,
    draws: Draws,
    on_progress: Callable[[int], None],
) -> list[Pair]:
    prompts = [policy.encode(item) for item in items]
    completions = NativeEngine(policy).sample(
        Request([ids for _, ids in prompts], group_size=config.group_size, decoding=config.decoding, draws=draws),
        on_progress=on_progress,
    )
    rollout = Rollout(items, [text for text, _ in prompts], [ids for _, ids in prompts], config.group_size, completions)
    scores = scorer.score(samples_of(rollout), lambda _: on_progress(rollout.rows))
    rewards_P_G = scores.total.reshape(len(items), config.group_size)
    live_P = group_statistics(rewards_P_G).live_P
    pairs = []
    for p, item in enumerate(items):
        if not live_P[p]:
            continue  # nothing was scored, or nothing is better than anything else
        rewards_G = rewards_P_G[p]
        group = completions[p * config.group_size : (p + 1) * config.group_size]
        best, worst = group[int(np.nanargmax(rewards_G))], group[int(np.nanargmin(rewards_G))]
        pairs.append(Pair(item.id, item.question, item.messages, _response(best), _response(worst)))
    return pairs


def _response(completion: Completion) -> Response:
    return Response(completion.text, tuple(completion.ids))
