"""Reference answers as rows have them: a value, or a list of which any is right."""

from collections.abc import Sequence

from backend.contract.base import Json
from backend.contract.task import as_text
from backend.contract.turns import written


def accepted(cell: Json) -> Sequence[str]:
    """Of a list of values, each as a text: an answer is right if it is one of them. Empty for anything else."""
    values = written(cell)
    if not isinstance(values, list) or any(isinstance(one, list | dict) or one is None for one in values):
        return ()
    # [1, 2] as a text is an interval or a point
    is_text = isinstance(cell, str) and not any(isinstance(one, str) for one in values)
    return () if is_text else [as_text(one) for one in values]


def object_problem(number: int, column: str, cell: Json) -> str | None:
    """Why no answer can be compared with the cell of row `number`: it is an object, or a list of them."""
    inside = written(cell)
    inside = inside[0] if isinstance(inside, list) and inside else inside
    if not isinstance(inside, dict):
        return None
    fields = ", ".join(f"{column}.{name}" for name in inside)
    return f"the reference answer of row {number} is an object, which no answer equals; name one of its fields: {fields:.300}"
