"""How token losses become one number."""

import numpy as np
import pytest

from worker.algorithms.aggregation import Aggregation, token_weights

MASK = np.array([[1.0, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]])
LOSS = np.array([[1.0, 2, 3, 4], [5, 7, 99, 99], [99, 99, 99, 99]])


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [("sequence_mean", (2.5 + 6.0) / 2), ("token_mean", 22 / 6), ("constant", 22 / (2 * 8))],
)
def test_each_aggregation_is_its_formula_and_an_empty_row_counts_in_no_mean(
    aggregation: Aggregation, expected: float
) -> None:
    weights = token_weights(MASK, aggregation=aggregation, max_new_tokens=8)
    assert (weights * LOSS).sum() == pytest.approx(expected)


@pytest.mark.parametrize("aggregation", ["sequence_mean", "token_mean", "constant"])
def test_nothing_to_train_on_weighs_nothing(aggregation: Aggregation) -> None:
    assert not token_weights(np.zeros((2, 3)), aggregation=aggregation, max_new_tokens=3).any()
