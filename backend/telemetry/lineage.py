"""Where runs come from each other, and from where on they differ."""

from sqlalchemy import Connection, select

from backend.contract.inspection import Difference, Lineage, Segment
from backend.storage import history
from backend.storage.history import LAST
from backend.storage.tables import completion, prompt_group

MOST_STEPS = 64
"""That are compared: two runs that draw differently show it in the first one."""

Step = dict[int, tuple[str, list[str]]]
"""By a group's index its prompt, and what was said."""


def lineage(tx: Connection, run_id: int) -> Lineage:
    """Of what a run's history is made."""
    parts = [
        Segment(run_id=of, first=first, last=None if last == LAST else last)
        for of, first, last in history.segments(tx, run_id)
    ]
    return Lineage(run_id=run_id, segments=parts)


def difference(tx: Connection, one: int, other: int) -> Difference:
    """The first group in which two runs differ, of the steps behind those that they share."""
    common = lineage(tx, one).shared_with(lineage(tx, other))
    for step in range(common, common + MOST_STEPS):
        mine, theirs = _said(tx, one, step), _said(tx, other, step)
        if not mine or not theirs:
            return Difference(shared=common, compared=step)
        for index in sorted(mine.keys() | theirs.keys()):
            left, right = mine.get(index), theirs.get(index)
            if left != right:
                same_prompt = left is not None and right is not None and left[0] == right[0]
                what = "completions" if same_prompt else "prompt"
                return Difference(shared=common, compared=step + 1, step=step, group_index=index, what=what)
    return Difference(shared=common, compared=common + MOST_STEPS)


def _said(tx: Connection, run_id: int, step: int) -> Step:
    group = prompt_group.c
    query = (
        select(group.index, group.prompt_text, completion.c.text)
        .join(completion, completion.c.group_id == group.id)
        .where(history.of_run(tx, prompt_group, run_id), group.step == step, group.state != "probe")
        .order_by(group.index, completion.c.index)
    )
    said: Step = {}
    for index, prompt, text in tx.execute(query):
        said.setdefault(index, (prompt, []))[1].append(text)
    return said
