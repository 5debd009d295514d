"""The floor counts what a step needs, and nothing else; and its tables land between their marks."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from results.page import replace_tables
from sides.floor import PYTORCH, ROWS, Rates, Shape, Tokens, floor_of

# 2 layers of 4 × (8 × 8) + 3 × (16 × 8) weights, an output layer of 32 × 8.
SHAPE = Shape(
    layers=2, hidden=8, heads=2, kv_heads=2, head_dim=4, intermediate=16, vocabulary=32, parameters=2 * 640 + 256
)
TOKENS = Tokens(prompts_P=[3, 5], completions_R=[1, 4, 2, 3])
LAYERS, HEAD = 2 * 2 * 640, 2 * 256  # operations of a token


def rates(*, operations_per_second: float = 1e9, bandwidth: float = 1e12) -> Rates:
    """The same rate at any number of rows."""
    matrices = [*SHAPE.layer_matrices, SHAPE.head_matrix]
    seconds = {
        one.name: {rows: 2 * one.outputs * one.inputs * rows / operations_per_second for rows in ROWS}
        for one in matrices
    }
    return Rates(seconds={PYTORCH: seconds}, bandwidth=bandwidth)


def test_each_phase_counts_the_tokens_that_it_needs() -> None:
    phases = floor_of(SHAPE, TOKENS, rates(), reference=True)
    assert phases["prefill"].matrix_operations == 8 * LAYERS + 2 * HEAD  # prompts once, logits of their last tokens
    assert phases["decode"].matrix_operations == 6 * (LAYERS + HEAD)
    assert phases["reference"].matrix_operations == (8 + 6) * LAYERS + 10 * HEAD  # every sampled token is scored
    assert phases["update"].operations == 3 * phases["reference"].operations
    assert "reference" not in floor_of(SHAPE, TOKENS, rates(), reference=False)


def test_attention_looks_at_what_came_before() -> None:
    phases = floor_of(SHAPE, TOKENS, rates(), reference=True)
    seen_by_prompts, seen_by_completions = 6 + 15, (3 * 3 + 1 + 2 + 3) + (5 + 1) + (2 * 5 + 1 + 2)
    per_key = 4 * SHAPE.layers * SHAPE.heads * SHAPE.head_dim
    assert phases["prefill"].operations - phases["prefill"].matrix_operations == per_key * seen_by_prompts
    assert phases["decode"].operations - phases["decode"].matrix_operations == per_key * seen_by_completions


def test_a_phase_takes_its_operations_or_its_bytes_whichever_is_longer() -> None:
    computing = floor_of(SHAPE, TOKENS, rates(bandwidth=1e15), reference=False)["decode"]
    moving = floor_of(SHAPE, TOKENS, rates(bandwidth=1e3), reference=False)["decode"]
    assert computing.seconds == pytest.approx(computing.operations / 1e9)
    assert moving.seconds == pytest.approx(moving.bytes_moved / 1e3)
    assert moving.bytes_moved > 3 * SHAPE.parameters * 4  # every weight at each of three positions, and the cache


def test_rates_between_two_points_lie_on_a_line_and_above_the_last_stay_its_own() -> None:
    matrix = SHAPE.head_matrix
    measured = Rates(seconds={PYTORCH: {matrix.name: {1: 1.0, 2: 1.5, 4: 2.5}}}, bandwidth=1.0)
    assert [measured.of(PYTORCH, matrix, rows) for rows in (1, 2, 3, 4, 8)] == [1.0, 1.5, 2.0, 2.5, 5.0]


def test_the_fastest_way_is_chosen_point_by_point() -> None:
    name = SHAPE.head_matrix.name
    both = Rates(seconds={PYTORCH: {name: {1: 1.0, 2: 4.0}}, "other": {name: {1: 2.0, 2: 3.0}}}, bandwidth=1.0)
    assert list(both.fastest().seconds.values()) == [{name: {1: 1.0, 2: 3.0}}]


def test_tables_replace_what_stands_between_the_marks_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    begin, end = "<!-- measured: begin -->", "<!-- measured: end -->"
    page.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    replace_tables(page, "new", "measured")
    replace_tables(page, "newer", "measured")
    assert page.read_text() == f"before\n{begin}\nnewer\n{end}\nafter\n"
    page.write_text("no marks")
    with pytest.raises(ValueError, match="no marks"):
        replace_tables(page, "new", "measured")
