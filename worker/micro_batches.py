"""Micro-batches: the rows of a step, split so that each part fits a budget of tokens, however that is done."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from worker.policy.logprobs import TokenBatch
from worker.rollout.rollout import Rollout
from worker.token_record import TokenRecord


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
        return values_R_T[self.rows, : self.mask_R_T.shape[1]].float().to(self.mask_R_T.device)


@dataclass(frozen=True)
class Batch:
    """A rollout as it passes through the model, and what is known of its tokens so far."""

    rollout: Rollout
    micro_batches: list[MicroBatch]
    tokens: TokenRecord


def split(
    rollout: Rollout, device: torch.device, *, budget: int, together: int = 1, with_supports: bool = False
) -> Batch:
    """The rollout in micro-batches of at most `budget` tokens; `together` completions, in order, are never parted.

    `with_supports` takes along which tokens the sampler could draw.
    """
    completions = [completion.ids for completion in rollout.completions_R]
    prompts = [rollout.prompt_of(row) for row in range(rollout.rows)]
    micro_batches = [
        MicroBatch(
            rows,
            TokenBatch.of(
                [prompts[row] for row in rows],
                [completions[row] for row in rows],
                device,
                [rollout.completions_R[row].supports for row in rows] if with_supports else None,
            ),
        )
        for rows in micro_batch_rows(prompts, completions, budget, together=together)
    ]
    lengths_R = torch.tensor([len(ids) for ids in completions])
    mask_R_T = torch.arange(int(lengths_R.max()))[None, :] < lengths_R[:, None]
    return Batch(rollout, micro_batches, TokenRecord(mask_R_T))


def micro_batch_rows(
    prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], budget: int, *, together: int = 1
) -> list[list[int]]:
    """Split rows, in their order, so that each part has at most `budget` tokens with padding.

    `together` rows, one after the other, are never split: they fit whatever they are. The siblings of a group stand
    together, and their prompt counts once.
    """
    parts: list[list[int]] = []
    different: set[tuple[int, ...]] = set()
    prompt_width = completion_width = 0
    for first in range(0, len(prompts), together):
        unit = list(range(first, min(first + together, len(prompts))))
        own = {tuple(prompts[row]) for row in unit}
        prompt_wide = max(len(prompts[row]) for row in unit)
        completion_wide = max(len(completions[row]) for row in unit)
        more = different | own
        wider = max(prompt_width, prompt_wide), max(completion_width, completion_wide)
        rows = (len(parts[-1]) if parts else 0) + len(unit)
        if parts and len(more) * wider[0] + rows * wider[1] <= budget:
            parts[-1] += unit
            different, (prompt_width, completion_width) = more, wider
        else:
            parts.append(unit)
            different, prompt_width, completion_width = own, prompt_wide, completion_wide
    return parts


def with_progress(micro_batches: Sequence[MicroBatch]) -> Iterator[tuple[MicroBatch, int]]:
    """Each micro-batch, and how many rows are done once it is."""
    done = 0
    for micro in micro_batches:
        done += len(micro.rows)
        yield micro, done
