"""Countdown: reach a target with given numbers. Every problem is made from a solution, so each can be solved."""

from dataclasses import dataclass
from random import Random

from backend.contract.task import Countdown, digest
from worker.tasks.items import Item, Items, by_digest, chat

POOL = 5000
HELD_OUT_SHARE = 0.2
LARGEST_TARGET = 999
_DRAWS = 10 * POOL


@dataclass(frozen=True)
class Problem:
    """Sorted numbers, a target, and one expression that reaches it with all of them."""

    numbers: tuple[int, ...]
    target: int
    solution: str

    @property
    def text(self) -> str:
        """What makes the problem this one, whatever its solution."""
        return f"{', '.join(map(str, self.numbers))} -> {self.target}"


def load(task: Countdown) -> Items:
    """A fixed pool for these numbers, split by each problem's own hash."""
    train: list[Item] = []
    held_out: list[Item] = []
    for problem in problems(count=task.numbers, high=task.high):
        numbers = ", ".join(map(str, problem.numbers))
        question = task.template.replace("{numbers}", numbers).replace("{target}", str(problem.target))
        item = Item(
            id=f"countdown:{problem.text}",
            question=question,
            messages=chat(task, question),
            answer=problem.solution,
            verifier={"kind": "countdown", "numbers": list(problem.numbers), "target": problem.target},
        )
        (held_out if is_held_out(problem) else train).append(item)
    return Items(train, by_digest(held_out))


def problems(*, count: int, high: int) -> list[Problem]:
    """At most 5000 distinct problems of `count` numbers from 1 to `high`, the same in every process and machine."""
    random = Random(f"countdown: {count} numbers to {high}")
    pool: dict[str, Problem] = {}
    for _ in range(_DRAWS):
        problem = _draw(random, count, high)
        if problem.target not in problem.numbers and problem.target <= LARGEST_TARGET:
            pool.setdefault(problem.text, problem)
        if len(pool) == POOL:
            break
    return list(pool.values())


def is_held_out(problem: Problem) -> bool:
    """Whether a problem is kept for evaluation: a property of its text alone."""
    return int(digest(f"held out: {problem.text}"), 16) < HELD_OUT_SHARE * 2**128


def _draw(random: Random, count: int, high: int) -> Problem:
    """Numbers, joined two by two in random order until one value is left: the target, a positive whole number."""
    numbers = [1 + _below(random, high) for _ in range(count)]
    terms = [(number, str(number)) for number in numbers]
    while len(terms) > 1:
        left, left_text = terms.pop(_below(random, len(terms)))
        right, right_text = terms.pop(_below(random, len(terms)))
        results = [(left + right, "+"), (left * right, "*")]
        if left > right:
            results.append((left - right, "-"))
        if left % right == 0:
            results.append((left // right, "/"))
        value, sign = results[_below(random, len(results))]
        terms.append((value, f"({left_text} {sign} {right_text})"))
    target, solution = terms[0]
    return Problem(tuple(sorted(numbers)), target, solution[1:-1])


def _below(random: Random, bound: int) -> int:
    # random() alone is promised to give the same sequence in every version of Python.
    return int(random.random() * bound)
