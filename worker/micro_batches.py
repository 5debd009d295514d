"""Micro-batches: the rows of a step, split so that each part fits a budget of tokens; and the record they fill."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from worker.policy.logprobs import TokenBatch, TokenValues


@dataclass
class TokenRecord:
    """Per-token values of the step, on the CPU, each (R, T); T is the longest completion. NaN where not computed."""

    mask: Tensor
    old_logprob: Tensor
    logprob: Tensor  # at the last update, before it was applied
    entropy: Tensor
    ratio: Tensor
    clipped: Tensor
    reference_logprob: Tensor | None = None
    kl: Tensor | None = None
    logprob_after: Tensor | None = None

    @staticmethod
    def empty(mask_R_T: Tensor, *, reference: bool, after: bool) -> "TokenRecord":
        """A record to be filled micro-batch by micro-batch."""

        def blank() -> Tensor:
            return torch.full(mask_R_T.shape, math.nan)

        clipped = torch.zeros(mask_R_T.shape, dtype=torch.bool)
        record = TokenRecord(mask_R_T, blank(), blank(), blank(), blank(), clipped)
        if reference:
            record.reference_logprob, record.kl = blank(), blank()
        if after:
            record.logprob_after = blank()
        return record


@dataclass
class MicroBatch:
    """Rows that pass through the model together. Tensors (r, t) of these rows, on the device."""

    rows: list[int]
    batch: TokenBatch
    advantages_R_1: Tensor
    weights_R_T: Tensor
    old_logprob_R_T: Tensor | None = None
    reference_R_T: Tensor | None = None

    @property
    def mask_R_T(self) -> Tensor:
        """True where a completion token stands."""
        return self.batch.mask_R_T

    def store(self, into: Tensor, values: Tensor) -> None:
        """Put these rows' values into the step's (R, T) record, where tokens stand."""
        kept = values.detach().to("cpu", into.dtype)
        mask = self.mask_R_T.cpu()
        for place, row in enumerate(self.rows):
            length = int(mask[place].sum())
            into[row, :length] = kept[place, :length]


def micro_batch_rows(
    prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], budget: int
) -> list[list[int]]:
    """Split rows, in their order, so that each part has at most `budget` tokens with padding; one row always fits.

    The siblings of a group stand together, and their prompt counts once.
    """
    parts: list[list[int]] = []
    different: set[tuple[int, ...]] = set()
    prompt_width = completion_width = 0
    for row, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        more = different | {tuple(prompt)}
        prompt_wide, completion_wide = max(prompt_width, len(prompt)), max(completion_width, len(completion))
        rows = len(parts[-1]) + 1 if parts else 1
        if parts and len(more) * prompt_wide + rows * completion_wide <= budget:
            parts[-1].append(row)
            different, prompt_width, completion_width = more, prompt_wide, completion_wide
        else:
            parts.append([row])
            different, prompt_width, completion_width = {tuple(prompt)}, len(prompt), len(completion)
    return parts


def with_progress(micro_batches: Sequence[MicroBatch]) -> Iterator[tuple[MicroBatch, int]]:
    """Each micro-batch, and how many rows are done once it is."""
    done = 0
    for micro in micro_batches:
        done += len(micro.rows)
        yield micro, done


def fill(
    record: TokenRecord,
    micro: MicroBatch,
    values: TokenValues,
    ratio_R_T: Tensor,
    clipped_R_T: Tensor,
    kl_R_T: Tensor | None,
) -> None:
    """Put one micro-batch's values into the record of the step."""
    assert micro.old_logprob_R_T is not None  # noqa: S101 — set by the pass that calls this
    micro.store(record.old_logprob, micro.old_logprob_R_T)
    micro.store(record.logprob, values.logprob_R_T)
    micro.store(record.entropy, values.entropy_R_T)
    micro.store(record.ratio, ratio_R_T)
    micro.store(record.clipped, clipped_R_T)
    if kl_R_T is not None and record.kl is not None and record.reference_logprob is not None:
        micro.store(record.kl, kl_R_T)
        reference = micro.reference_R_T if micro.reference_R_T is not None else micro.old_logprob_R_T
        micro.store(record.reference_logprob, reference)
