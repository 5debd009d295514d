"""How token losses become one number."""

from statistics import mean
from typing import get_args

import numpy as np
import pytest

from backend.contract.algorithm import Aggregation
from worker.algorithms.objective import token_weights

AGGREGATIONS = get_args(Aggregation)
MAX_NEW_TOKENS, GROUP_SIZE = 8, 2
# Three prompts of two completions: one completion and one whole prompt have nothing to train on.
LENGTHS = [4, 2, 0, 0, 0, 3]
MASK = (np.arange(5) < np.array(LENGTHS)[:, None]).astype(float)
LOSS = np.random.default_rng(0).normal(size=MASK.shape)


def plain(aggregation: Aggregation) -> float:
    """The aggregated loss, from the losses of each completion as lists."""
    rows = [LOSS[r, :length].tolist() for r, length in enumerate(LENGTHS)]
    trained = [row for row in rows if row]
    prompts = [[row for row in rows[p : p + GROUP_SIZE] if row] for p in range(0, len(rows), GROUP_SIZE)]
    prompts = [prompt for prompt in prompts if prompt]
    return {
        "sequence_mean": lambda: mean(mean(row) for row in trained),
        "token_mean": lambda: mean(loss for row in trained for loss in row),
        "constant": lambda: sum(sum(row) for row in trained) / (len(trained) * MAX_NEW_TOKENS),
        "sequence_sum": lambda: mean(sum(row) for row in trained),
        "group_sum": lambda: mean(sum(sum(row) for row in prompt) for prompt in prompts),
        "group_token_mean": lambda: mean(sum(mean(row) for row in prompt) for prompt in prompts),
    }[aggregation]()


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_each_aggregation_is_its_formula_and_what_is_empty_counts_in_no_mean(aggregation: Aggregation) -> None:
    weights = token_weights(MASK, aggregation=aggregation, max_new_tokens=MAX_NEW_TOKENS, group_size=GROUP_SIZE)
    assert (weights * LOSS).sum() == pytest.approx(plain(aggregation))


def test_the_aggregations_differ() -> None:
    assert len({round(plain(aggregation), 6) for aggregation in AGGREGATIONS}) == len(AGGREGATIONS)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("seed", range(5))
def test_no_split_of_the_rows_changes_the_loss(aggregation: Aggregation, seed: int) -> None:
    """Also one that tears the completions of a prompt apart, in any order and with padding cut off."""
    weights = token_weights(MASK, aggregation=aggregation, max_new_tokens=MAX_NEW_TOKENS, group_size=GROUP_SIZE)
    generator = np.random.default_rng(seed)
    cuts = np.sort(generator.choice(np.arange(1, 6), size=generator.integers(1, 6), replace=False))
    parts = np.split(generator.permutation(6), cuts)
    widths = [max(LENGTHS[row] for row in rows) for rows in parts]
    total = sum((weights[rows, :w] * LOSS[rows, :w]).sum() for rows, w in zip(parts, widths, strict=True))
    assert total == pytest.approx(plain(aggregation), rel=1e-9)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_nothing_to_train_on_weighs_nothing(aggregation: Aggregation) -> None:
    assert not token_weights(np.zeros((2, 3)), aggregation=aggregation, max_new_tokens=3, group_size=2).any()
