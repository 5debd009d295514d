"""Micro-batches: the rows of a step, split so that each part fits a budget of tokens, however that is done."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from worker.policy.device import send
from worker.policy.logprobs import TokenBatch
from worker.policy.policy import Policy
from worker.rollout.engine import Rollout
from worker.token_record import TokenRecord

_MOST_PADDING = 8
"""Times the budget: what rows of very different lengths may take side by side."""


@dataclass
class MicroBatch:
    """Rows that pass through the model together. Tensors (r, t) of these rows, on the device."""

    rows: list[int]
    batch: TokenBatch
    old_logprob_R_T: Tensor | None = None
    reference_R_T: Tensor | None = None

    @property
    def mask_R_T(self) -> Tensor:
        """True where a completion token stands."""
        return self.batch.mask_R_T

    def of(self, values_R_T: Tensor) -> Tensor:
        """These rows of a step's (R, T) or (R, 1) values, as wide as this micro-batch. In float32: Apple's GPUs have no float64."""
        return send(self.on_host(values_R_T), self.mask_R_T.device)

    def on_host(self, values_R_T: Tensor) -> Tensor:
        """The same where they are."""
        return values_R_T[self.rows, : self.mask_R_T.shape[1]].float()


@dataclass(frozen=True)
class Batch:
    """A rollout as it passes through the model, and what is known of its tokens so far."""

    rollout: Rollout
    micro_batches: list[MicroBatch]
    tokens: TokenRecord
    passes: int
    """How many micro-batches the process with the most of them has: where weights are gathered, each passes as often."""
    own: range
    """The rows that this process computes."""


def split(
    rollout: Rollout,
    policy: Policy,
    *,
    budget: int,
    together: int = 1,
    with_supports: bool = False,
    left_out: Collection[int] = (),
) -> Batch:
    """The rollout in micro-batches of at most `budget` tokens, or what the policy can hold; `together` completions, in order, are never parted.

    Where several processes train, each gets the rows of its share of the groups. `with_supports` takes along which tokens the sampler could draw. Rows that are `left_out` are in no micro-batch.
    """
    completions = [completion.ids for completion in rollout.completions_R]
    prompts = [rollout.prompt_of(row) for row in range(rollout.rows)]
    size = rollout.group_size
    groups = policy.ranks.share(rollout.rows // size)
    own = range(groups.start * size, groups.stop * size)
    kept = [row for row in own if row not in left_out]
    budget = min(budget, policy.tokens_at_once or budget)
    micro_batches = [
        MicroBatch(
            rows,
            TokenBatch.of(
                [prompts[row] for row in rows],
                [completions[row] for row in rows],
                policy.device,
                [rollout.completions_R[row].supports for row in rows] if with_supports else None,
            ),
        )
        for rows in micro_batch_rows(kept, prompts, completions, budget, together=together, packed=policy.packs)
    ]
    lengths_R = torch.tensor([len(ids) for ids in completions])
    mask_R_T = torch.arange(int(lengths_R.max()))[None, :] < lengths_R[:, None]
    return Batch(rollout, micro_batches, TokenRecord(mask_R_T), max(policy.ranks.gather(len(micro_batches))), own)


def micro_batch_rows(
    rows: Sequence[int],
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    budget: int,
    *,
    together: int = 1,
    packed: bool = True,
) -> list[list[int]]:
    """Split rows, in their order, so that each part passes at most `budget` tokens through the model.

    `together` rows, one after the other, are never split: they fit whatever they are. Where the pass is `packed`, a prompt
    counts once for the rows that share it; else rows of prompt and completion stand side by side, as long as the longest.
    In the attention they do so in any case, which is cheap until the lengths are very different.
    """

    parts: list[list[int]] = []
    shared: set[tuple[int, ...]] = set()
    used = width = 0
    for first in range(0, len(rows), together):
        unit = list(rows[first : first + together])
        own = {tuple(prompts[row]) for row in unit}
        answers = sum(len(completions[row]) for row in unit)
        wide = max(len(prompts[row]) + len(completions[row]) for row in unit)
        count = (len(parts[-1]) if parts else 0) + len(unit)
        padded = count * max(width, wide)
        more = used + answers + sum(map(len, own - shared)) if packed else padded
        if parts and more <= budget and padded <= _MOST_PADDING * budget:
            parts[-1] += unit
            shared |= own
            used, width = more, max(width, wide)
        else:
            parts.append(unit)
            shared, used, width = own, answers + sum(map(len, own)), wide
    return parts


def with_progress(batch: Batch, idle: Callable[[], None]) -> Iterator[tuple[MicroBatch, int]]:
    """Each micro-batch, and how many rows are done once it is. `idle` is called for each pass that others do beyond them."""
    done = 0
    for micro in batch.micro_batches:
        done += len(micro.rows)
        yield micro, done
    for _ in range(batch.passes - len(batch.micro_batches)):
        idle()
