"""Countdown: the problems, which can all be solved."""

import subprocess
import sys

import pytest

from worker.rewards.answers import reaches
from worker.tasks.countdown import problems


@pytest.mark.slow
@pytest.mark.parametrize(("count", "high"), [(2, 5), (4, 20), (6, 100)])
def test_every_problem_is_solved_by_its_reference_and_never_by_a_given_number(count: int, high: int) -> None:
    for problem in problems(count=count, high=high):
        assert reaches(problem.solution, problem.numbers, problem.target), problem
        assert problem.target not in problem.numbers
        assert len(problem.numbers) == count
        assert all(1 <= number <= high for number in problem.numbers)


@pytest.mark.slow
def test_the_problems_are_the_same_in_every_process() -> None:
    program = "from worker.tasks.countdown import problems; print(problems(count=4, high=20)[-1])"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == str(problems(count=4, high=20)[-1])
