"""Groups and completions: stored whole, listed by what the list shows, read one by one."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, func, insert, not_, or_, select, union

from backend.contract import records as r
from backend.contract.groups import Group, GroupReport, GroupSummary, StepSummary
from backend.contract.inspection import CompletionHit
from backend.contract.queries import CompletionQuery, GroupQuery, PromptGroupQuery, StepQuery
from backend.errors import NotFound
from backend.runs import store as runs
from backend.storage import folding, history, statements
from backend.storage.tables import bookmark, completion, prompt_group, thumb
from backend.telemetry import search

EXCERPT = 200  # characters
BEFORE = 60  # of them, before what was searched
COMPLETION_SORTS = {
    "step": completion.c.step,
    "reward": completion.c.reward,
    "advantage": completion.c.advantage,
    "tokens": completion.c.token_count,
}
MAX_STEPS = 10_000  # in one answer
ENDS = 80  # characters of the best and the worst text that a list shows
SORTS = {
    "index": prompt_group.c.index,
    "step": prompt_group.c.step,
    "reward_mean": prompt_group.c.reward_mean,
    "reward_std": prompt_group.c.reward_std,
}
TEXTS = ("prompt_text", "prompt", "answer")
BOOKMARKED = select(1).where(bookmark.c.group_id == prompt_group.c.id).exists()


def store(
    tx: Connection,
    run_id: int,
    attempt_: int,
    of_steps: Sequence[tuple[int, Sequence[GroupReport], Collection[tuple[int, int]]]],
) -> None:
    """Add the groups of some steps, each with the (group, completion) indices whose tokens were kept."""
    place = {"run_id": run_id, "attempt": attempt_}
    values = [
        group.model_dump(exclude={"completions"})
        | place
        | {"step": step, "folded": folding.kept_fold(group.prompt_text)}
        | _shown(group)
        for step, groups, _ in of_steps
        for group in groups
    ]
    if not values:
        return
    column = prompt_group.c
    added = insert(prompt_group).returning(column.step, column.index, column.id)  # SQLite gives them in any order
    ids = {(step, index): id_ for step, index, id_ in tx.execute(added, values)}
    rows = [
        one.model_dump()
        | place
        | {"step": step, "group_id": ids[step, group.index], "state": group.state}
        | {"has_trace": (group.index, one.index) in traced, "folded": folding.kept_fold(one.text)}
        for step, groups, traced in of_steps
        for group in groups
        for one in group.completions
    ]
    if rows:
        # `returning` makes one statement of many rows: after each statement SQLite writes what its index of texts gained
        tx.execute(insert(completion).returning(completion.c.id), rows).close()


def _shown(group: GroupReport) -> dict[str, Any]:
    """What lists show, which read no completion."""
    scored = [one for one in group.completions if one.reward is not None]
    best = max(scored, key=lambda one: one.reward or 0.0, default=None)
    worst = min(scored, key=lambda one: one.reward or 0.0, default=None)
    return {
        "rewards": [one.reward for one in group.completions],
        "advantages": [one.advantage for one in group.completions],
        "best": best.text[-ENDS:] if best else None,
        "worst": worst.text[-ENDS:] if worst else None,
    }


def indices(tx: Connection, run_id: int, attempt_: int, steps: Sequence[int]) -> dict[int, set[int]]:
    """Which groups of some steps have been stored for an attempt, by step; none for any other."""
    column = prompt_group.c
    query = select(column.step, column.index).where(column.run_id == run_id, column.attempt == attempt_)
    found: dict[int, set[int]] = defaultdict(set)
    for step, index in tx.execute(query.where(column.step.in_(steps))):
        found[step].add(index)
    return found


def page(tx: Connection, run_id: int, query: GroupQuery) -> r.Page[GroupSummary]:
    """Live groups of a run. Bookmarked ones are listed also if a resume took them back: a note can still be found.

    Those without the number that sorts come last.
    """
    live = history.uncut(tx, prompt_group, *(part.run_id for part in history.segments(tx, run_id)))
    filters: list[tuple[object, ColumnElement[bool]]] = [
        (query.step, prompt_group.c.step == query.step),
        (query.prompt_id, prompt_group.c.prompt_id == query.prompt_id),
        (query.state, prompt_group.c.state == query.state),
        (query.bookmarked, BOOKMARKED if query.bookmarked else ~BOOKMARKED),
    ]
    asked = (condition for value, condition in filters if value is not None)
    found = select(prompt_group.c.id).where(*asked, _said(tx, run_id, query.search))
    found = found if query.bookmarked else found.where(live)
    column = SORTS[query.sort.removeprefix("-")]
    first = column.desc() if query.sort.startswith("-") else column.asc()
    found = found.order_by(first.nulls_last(), prompt_group.c.step, prompt_group.c.index, prompt_group.c.id)
    return _summaries(tx, live, *statements.find(tx, found, query))


def of_prompt(tx: Connection, query: PromptGroupQuery) -> r.Page[GroupSummary]:
    """Live groups of one prompt in several runs, by run and step."""
    live = or_(*(history.of_run(tx, prompt_group, run_id) for run_id in query.runs))
    found = (
        select(prompt_group.c.id)
        .where(prompt_group.c.prompt_id == query.prompt_id, live)
        .order_by(prompt_group.c.run_id, prompt_group.c.step, prompt_group.c.id)
    )
    return _summaries(tx, live, *statements.find(tx, found, query))


def _summaries(
    tx: Connection, live: ColumnElement[bool], ids: Sequence[int], cursor: str | None
) -> r.Page[GroupSummary]:
    shown = (one for one in prompt_group.c if one.name != "folded")
    columns = (statements.beginning(one) if one.name in TEXTS else one for one in shown)
    query = select(*columns, BOOKMARKED.label("bookmarked"), not_(live).label("superseded"))
    rows = statements.fetch(tx, query, prompt_group.c.id, ids)
    return r.Page[GroupSummary](items=[GroupSummary.model_validate(dict(row)) for row in rows], next_cursor=cursor)


def _said(tx: Connection, run_id: int, term: str | None) -> ColumnElement[bool]:
    """Whether a group is of the run and its prompt, or one of its completions, has the term."""
    own = history.in_segments(prompt_group, history.segments(tx, run_id))
    if not term:
        return own
    asks = search.contains(tx, prompt_group.c.prompt_text, term)
    answers = search.contains(tx, completion.c.text, term)
    prompts = search.candidates(tx, prompt_group, run_id, term, search.MOST)
    texts = search.candidates(tx, completion, run_id, term, search.MOST)
    if prompts is None or texts is None:
        anywhere = select(1).where(completion.c.group_id == prompt_group.c.id, answers).exists()
        return and_(own, or_(asks, anywhere))
    either = union(
        select(prompt_group.c.id).where(search.among(prompt_group, run_id, prompts), asks),
        select(completion.c.group_id).where(search.among(completion, run_id, texts), answers),
    )
    return search.among(prompt_group, run_id, list(tx.execute(either).scalars()))


def get(tx: Connection, group_id: int) -> Group:
    """A group with its completions. Raises NotFound."""
    query = select(prompt_group).where(prompt_group.c.id == group_id, runs.of_present(prompt_group))
    row = tx.execute(query).mappings().one_or_none()
    if row is None:
        raise NotFound(f"There is no group {group_id}.")
    return with_completions(tx, [row])[0]


def with_completions(tx: Connection, rows: Sequence[RowMapping]) -> list[Group]:
    """The groups of some rows, whole, with what people said of them."""
    ids = [row["id"] for row in rows]
    query = (
        select(completion, thumb.c.thumb)
        .outerjoin(thumb, thumb.c.completion_id == completion.c.id)
        .where(completion.c.group_id.in_(ids))
        .order_by(completion.c.group_id, completion.c.index)
    )
    members: dict[int, list[dict[str, Any]]] = {one: [] for one in ids}
    for one in tx.execute(query).mappings():
        members[one["group_id"]].append(dict(one))
    notes = tx.execute(select(bookmark).where(bookmark.c.group_id.in_(ids))).mappings()
    bookmarks = {note["group_id"]: dict(note) for note in notes}
    return [
        Group.model_validate({**row, "completions": members[row["id"]], "bookmark": bookmarks.get(row["id"])})
        for row in rows
    ]


def steps(tx: Connection, run_id: int, query: StepQuery, limit: int = MAX_STEPS) -> r.Page[StepSummary]:
    """The live steps that have groups, and how many are in which state."""
    counted = (
        select(prompt_group.c.step, prompt_group.c.state, func.count())
        .where(history.of_run(tx, prompt_group, run_id))
        .group_by(prompt_group.c.step, prompt_group.c.state)
        .order_by(prompt_group.c.step, prompt_group.c.state)
    )
    if query.after_step is not None:
        counted = counted.where(prompt_group.c.step > query.after_step)
    states: dict[int, dict[str, int]] = {}
    cursor: str | None = None
    for step, state, count in tx.execute(counted):
        if step not in states and len(states) == limit:
            cursor = str(max(states))
            break
        states.setdefault(step, {})[state] = count
    items = [StepSummary(step=step, states=counts) for step, counts in states.items()]
    return r.Page[StepSummary](items=items, next_cursor=cursor)


def completions(tx: Connection, run_id: int, query: CompletionQuery) -> r.Page[CompletionHit]:
    """Live completions; those without the number that sorts come last."""
    uncut = history.uncut(tx, completion, *(part.run_id for part in history.segments(tx, run_id)))
    same = (completion.c.state, query.state), (completion.c.finish_reason, query.finish_reason)
    asked = [column == value for column, value in same if value is not None]
    for name, column in COMPLETION_SORTS.items():
        low, high = getattr(query, f"{name}_min"), getattr(query, f"{name}_max")
        asked += [column >= low] if low is not None else []
        asked += [column <= high] if high is not None else []
    live = select(completion.c.id).where(uncut, *asked)
    found = search.narrow(tx, live, completion, run_id, completion.c.text, query.search)
    # the order of one of the indexes, or its reverse; a column that stood there twice would be sorted by once more
    columns = dict.fromkeys((COMPLETION_SORTS[query.sort.removeprefix("-")], completion.c.step, completion.c.id))
    first, *rest = (column.desc() if query.sort.startswith("-") else column.asc() for column in columns)
    ids, cursor = statements.find(tx, found.order_by(first.nulls_last(), *rest), query)
    of_group = prompt_group.c.index.label("group_index"), prompt_group.c.prompt_id
    whole = select(completion, *of_group, statements.beginning(prompt_group.c.prompt))
    whole = whole.join(prompt_group, prompt_group.c.id == completion.c.group_id)
    rows = statements.fetch(tx, whole, completion.c.id, ids)
    hits = [CompletionHit.model_validate({**row, "excerpt": excerpt(row["text"], query.search)}) for row in rows]
    return r.Page[CompletionHit](items=hits, next_cursor=cursor)


def excerpt(text: str, term: str | None) -> str:
    """About 200 characters around the first place of the term; without a term its end, which has the answer."""
    wanted = folding.folded(term or "")
    found = folding.folded(text).find(wanted) if wanted else -1
    if found > 0 and not text.isascii():  # folding moves places: the first by which as many letters are folded
        found = bisect_left(range(len(text)), found, key=lambda end: len(folding.folded(text[:end])))
    start = max(0, min(found - BEFORE, len(text) - EXCERPT)) if found >= 0 else max(0, len(text) - EXCERPT)
    end = max(start + EXCERPT, found + len(wanted)) if found >= 0 else len(text)
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")
