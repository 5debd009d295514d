"""Arithmetic problems, their worked solutions, and the split that keeps some of them away from every training.

An expression is numbers and operators with single spaces between them ("2 + 2 x 6"); "x" is multiplication. There are
two readings: by precedence ("x" before "+" and "-"), which is right, and strictly left to right, a common mistake.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256

from backend.contract.task import Arithmetic
from worker.tasks.items import Item, Items, by_digest, chat, item_id

LARGEST_POOL = 20_000
"""Problems in a pool at most; a larger space of expressions is sampled."""

HELD_OUT_SHARE = 0.42
"""Share of expressions never trained on: high enough that the default space (1296 problems) holds out 500."""

_DRAWS = 10 * LARGEST_POOL
_APPLY: dict[str, Callable[[int, int], int]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "x": lambda left, right: left * right,
}


@dataclass(frozen=True)
class Problem:
    """An expression and its value by precedence."""

    expression: str
    answer: int


@dataclass(frozen=True)
class Reading:
    """One way through an expression: each step as it is written ("2 x 6 = 12"), its result, and the final answer."""

    steps: tuple[str, ...]
    results: tuple[int, ...]

    @property
    def answer(self) -> int:
        """The result of the last step."""
        return self.results[-1]

    @property
    def text(self) -> str:
        """The worked solution in the form that the built-in model answers in."""
        return f"<think>{'; '.join(self.steps)}</think><answer>{self.answer}</answer>"


@lru_cache(1)  # the next run of a worker mostly spans the same pool
def problems(operands: int, low: int, high: int, operators: tuple[str, ...], precedence: bool) -> tuple[Problem, ...]:
    """Every problem of `operands` numbers in low..high, or a fixed sample of 20,000 where there are more.

    With `precedence`, only expressions whose left-to-right reading gives another answer. The order is the same in every
    process and on every machine. Empty where nothing qualifies (no "x" beside "+" or "-", fewer than three operands).
    """
    pool = []
    for expression in _expressions(operands, range(low, high + 1), operators):
        answer = read_by_precedence(expression).answer
        if not precedence or read_left_to_right(expression).answer != answer:
            pool.append(Problem(expression, answer))
            if len(pool) == LARGEST_POOL:
                break
    return tuple(pool)


def is_held_out(expression: str) -> bool:
    """Whether an expression is kept for evaluation: a property of its text alone, so it holds in every run for ever."""
    digest = sha256(f"held out: {' '.join(expression.split())}".encode()).digest()
    return int.from_bytes(digest[:8]) < HELD_OUT_SHARE * 2**64


def read_by_precedence(expression: str) -> Reading:
    """The right procedure: multiplications first, from the left; then the rest, from the left."""
    return _read(expression, lambda operators: operators.index("x") if "x" in operators else 0)


def read_left_to_right(expression: str) -> Reading:
    """The common mistake: every operation in the order in which it is written."""
    return _read(expression, lambda _operators: 0)


def _read(expression: str, next_operation: Callable[[list[str]], int]) -> Reading:
    pieces = expression.split()
    numbers, operators = [int(piece) for piece in pieces[::2]], pieces[1::2]
    steps, results = [], []
    while operators:
        at = next_operation(operators)
        left, operator, right = numbers[at], operators.pop(at), numbers.pop(at + 1)
        numbers[at] = _APPLY[operator](left, right)
        steps.append(f"{left} {operator} {right} = {numbers[at]}")
        results.append(numbers[at])
    return Reading(tuple(steps), tuple(results))


def _expressions(operands: int, numbers: range, operators: tuple[str, ...]) -> Iterator[str]:
    """All expressions in order, or distinct ones drawn by hash where there are more than a pool holds."""
    space = len(numbers) ** operands * len(operators) ** (operands - 1)
    if space <= LARGEST_POOL:
        indices: Iterator[int] = iter(range(space))
    else:
        draws = (int.from_bytes(sha256(f"draw: {draw}".encode()).digest()) % space for draw in range(_DRAWS))
        indices = iter(dict.fromkeys(draws))
    for place in indices:  # read as a number of mixed base: operand, operator, operand, …
        index, digit = divmod(place, len(numbers))
        pieces = [str(numbers[digit])]
        for _ in range(operands - 1):
            index, operator = divmod(index, len(operators))
            index, digit = divmod(index, len(numbers))
            pieces += [operators[operator], str(numbers[digit])]
        yield " ".join(pieces)


def load(task: Arithmetic) -> Items:
    """The pool that the configuration spans, split by each expression's own hash."""
    pool = problems(task.operands, task.low, task.high, tuple(task.operators), task.precedence)
    train: list[Item] = []
    held_out: list[Item] = []
    for problem in pool:
        question = task.template.replace("{expression}", problem.expression)
        item = Item(
            id=item_id("arithmetic", problem.expression),
            question=question,
            messages=chat(task, question),
            answer=str(problem.answer),
            verifier={"kind": "numeric"},
        )
        (held_out if is_held_out(problem.expression) else train).append(item)
    return Items(train, by_digest(held_out))
