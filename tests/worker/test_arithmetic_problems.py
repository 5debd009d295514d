"""The arithmetic problems, their two readings, and the held-out split."""

import pytest

from worker.tasks.arithmetic import LARGEST_POOL, Problem, is_held_out, problems, read_by_precedence, read_left_to_right

ALL = ("+", "-", "x")


def default_pool() -> list[Problem]:
    return problems(operands=3, low=1, high=9, operators=ALL, precedence=True)


def test_the_documents_example_reads_right_and_wrong_as_written_there() -> None:
    right, wrong = read_by_precedence("2 + 2 x 6"), read_left_to_right("2 + 2 x 6")
    assert right.text == "<think>2 x 6 = 12; 2 + 12 = 14</think><answer>14</answer>"
    assert wrong.text == "<think>2 + 2 = 4; 4 x 6 = 24</think><answer>24</answer>"


@pytest.mark.parametrize(
    ("expression", "by_precedence", "left_to_right"),
    [
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


def test_with_precedence_the_two_readings_never_agree() -> None:
    pool = default_pool()
    assert len(pool) == 2 * 9 * 9 * 8  # a + b x c and a - b x c agree only where c is 1
    for problem in pool:
        assert read_left_to_right(problem.expression).answer != problem.answer


@pytest.mark.slow
def test_a_large_space_gives_a_full_pool_of_distinct_problems_within_bounds() -> None:
    pool = problems(operands=4, low=1, high=99, operators=ALL, precedence=True)
    assert len(pool) == len(set(pool)) == LARGEST_POOL
    numbers = {int(piece) for problem in pool for piece in problem.expression.split()[::2]}
    assert numbers == set(range(1, 100))


@pytest.mark.slow
def test_the_order_is_the_same_every_time_and_starts_where_it_always_did() -> None:
    assert default_pool() == default_pool()
    assert [problem.expression for problem in default_pool()[:3]] == ["1 + 1 x 2", "2 + 1 x 2", "3 + 1 x 2"]
    large = problems(operands=4, low=1, high=99, operators=ALL, precedence=True)
    assert large[0].expression == "10 + 31 + 84 x 31"


def test_nothing_qualifies_where_precedence_cannot_matter() -> None:
    assert problems(operands=2, low=1, high=9, operators=ALL, precedence=True) == ()
    assert problems(operands=3, low=1, high=9, operators=("+", "-"), precedence=True) == ()


def test_the_default_task_holds_out_at_least_500_problems_and_keeps_most_for_training() -> None:
    held_out = [problem for problem in default_pool() if is_held_out(problem.expression)]
    assert 500 <= len(held_out) < len(default_pool()) / 2


def test_an_expression_held_out_once_is_held_out_for_ever_however_it_is_spaced() -> None:
    assert is_held_out("3 + 1 x 2")
    assert is_held_out("5 + 1 x 2")
    assert not is_held_out("1 + 1 x 2")
    assert not is_held_out("2 + 1 x 2")
    for problem in default_pool():
        assert is_held_out(f"  {problem.expression.replace(' ', '   ')} ") == is_held_out(problem.expression)
