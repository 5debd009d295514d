"""Values that a trainer measured over more columns than the completions have, as Unsloth does, stand at their tokens."""

from typing import Any

import numpy as np
import torch

from groupscope.rows import Rows

PADDING = 0


def test_values_of_rows_whose_padding_was_moved_stand_at_their_tokens() -> None:
    prompts = torch.tensor([[0, 0, 0, 11], [0, 21, 22, 23], [31, 32, 33, 34]])
    completions = torch.tensor([[12, 13, 0], [24, 25, 26], [35, 0, 0]])
    packed = torch.tensor([[11, 12, 13, 0, 0, 0, 0], [21, 22, 23, 24, 25, 26, 0], [31, 32, 33, 34, 35, 0, 0]])
    there = completions != PADDING
    output: dict[str, Any] = {
        "prompt_ids": prompts,
        "completion_ids": completions,
        "completion_mask": there.int(),
        "old_per_token_logps": packed[:, -(3 + 3) :].float(),  # as many more as the shortest prompt has padding
    }
    rows = Rows.of([{}, {}, {}], output, PADDING)
    some = np.array([2, 0])
    rows.put("logprob", some, packed[some, -(3 + 3) :].float())  # a part of the batch, in another order
    assert (rows.values["old_logprob"] == completions.numpy())[there].all()
    assert (rows.values["logprob"] == completions.numpy())[some][there[some]].all()
    assert np.isnan(rows.values["logprob"][1]).all()
