"""DAPO's dynamic sampling: dead groups are replaced by groups of further prompts, so that every group has a signal."""

from collections.abc import Callable

from backend.contract.advantage import Advantage
from worker.credit import live_in
from worker.scored import Scored


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
    live_P = live_in(chosen, scored.scores, scored.rollout.group_size).tolist()
    return [p for p, live in enumerate(live_P) if not live]
