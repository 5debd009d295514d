"""Sums, differences and products of whole numbers."""

from backend.contract.task import Arithmetic
from worker.tasks.arithmetic_problems import Problem, is_held_out, problems
from worker.tasks.items import Item, Items, by_digest, chat, item_id


def load(task: Arithmetic) -> Items:
    """The pool that the configuration spans, split by each expression's own hash."""
    pool = problems(
        operands=task.operands,
        low=task.low,
        high=task.high,
        operators=task.operators,
        precedence=task.precedence,
    )
    return Items(
        train=[_item(task, problem) for problem in pool if not is_held_out(problem.expression)],
        held_out=by_digest([_item(task, problem) for problem in pool if is_held_out(problem.expression)]),
    )


def _item(task: Arithmetic, problem: Problem) -> Item:
    question = task.template.replace("{expression}", problem.expression)
    return Item(
        id=item_id("arithmetic", problem.expression),
        question=question,
        messages=chat(task, question),
        answer=str(problem.answer),
        verifier={"kind": "numeric"},
    )
