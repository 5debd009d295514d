"""The arithmetic problems, their two readings, and the held-out split."""

import pytest

from worker.tasks.arithmetic import LARGEST_POOL, is_held_out, problems, read_by_precedence, read_left_to_right

ALL = ("+", "-", "x")
DEFAULT = problems(operands=3, low=1, high=9, operators=ALL, precedence=True)


@pytest.mark.parametrize(
    ("expression", "by_precedence", "left_to_right"),
    [
        ("2 + 2 x 6", 14, 24),
        ("9 - 2 x 6", -3, 42),
        ("2 x 3 + 4 x 5", 26, 50),
        ("9 - 4 - 3", 2, 2),
        ("1 - 2 x 3 + 4", -1, 1),
        ("-3 + -2 x 4", -11, -20),
    ],
)
def test_both_readings_reach_the_value_that_arithmetic_says(
    expression: str, by_precedence: int, left_to_right: int
) -> None:
    assert read_by_precedence(expression).answer == by_precedence
    assert read_left_to_right(expression).answer == left_to_right


@pytest.mark.parametrize("operands", [2, 3, 4])
def test_every_answer_is_what_python_makes_of_the_expression(operands: int) -> None:
    for problem in problems(operands=operands, low=1, high=9, operators=ALL, precedence=False)[:2000]:
        assert problem.answer == eval(problem.expression.replace("x", "*"))  # noqa: S307 - our own digits and signs


def test_a_small_space_is_enumerated_whole_and_without_repeats() -> None:
    pool = problems(operands=3, low=1, high=9, operators=ALL, precedence=False)
    assert len(pool) == len(set(pool)) == 9**3 * 3**2


def test_a_reading_is_written_step_by_step() -> None:
    right, wrong = read_by_precedence("2 + 2 x 6"), read_left_to_right("2 + 2 x 6")
    assert right.text == "<think>2 x 6 = 12; 2 + 12 = 14</think><answer>14</answer>"
    assert wrong.text == "<think>2 + 2 = 4; 4 x 6 = 24</think><answer>24</answer>"


def test_with_precedence_the_two_readings_never_agree() -> None:
    assert len(DEFAULT) == 2 * 9 * 9 * 8  # a + b x c and a - b x c agree only where c is 1
    assert all(read_left_to_right(problem.expression).answer != problem.answer for problem in DEFAULT)
    for operands, operators in ((2, ALL), (3, ("+", "-"))):
        assert problems(operands=operands, low=1, high=9, operators=operators, precedence=True) == ()


@pytest.mark.slow
def test_a_large_space_gives_a_full_pool_within_bounds_in_an_order_that_starts_where_it_always_did() -> None:
    pool = problems(operands=4, low=1, high=99, operators=ALL, precedence=True)
    assert len(pool) == len(set(pool)) == LARGEST_POOL
    assert {int(piece) for problem in pool for piece in problem.expression.split()[::2]} == set(range(1, 100))
    assert pool[0].expression == "10 + 31 + 84 x 31"
    assert [problem.expression for problem in DEFAULT[:3]] == ["1 + 1 x 2", "2 + 1 x 2", "3 + 1 x 2"]


def test_what_is_held_out_stays_so_however_it_is_spaced_and_most_problems_are_left_for_training() -> None:
    held_out = [problem.expression for problem in DEFAULT if is_held_out(problem.expression)]
    assert 500 <= len(held_out) < len(DEFAULT) / 2
    assert {"3 + 1 x 2", "5 + 1 x 2"} <= set(held_out)
    assert {"1 + 1 x 2", "2 + 1 x 2"}.isdisjoint(held_out)
    for problem in DEFAULT:
        spaced = f"  {problem.expression.replace(' ', '   ')} "
        assert is_held_out(spaced) == is_held_out(problem.expression)
