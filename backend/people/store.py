"""Bookmarks, thumbs and choices in the database."""

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, FromClause, Select, and_, delete, insert, select

from backend.contract.people import Bookmark, Choice, ChoiceWrite, Thumb
from backend.errors import Invalid, NotFound
from backend.field_errors import FieldError
from backend.runs import store as runs
from backend.storage.statements import upsert
from backend.storage.tables import bookmark, choice, completion, prompt_group, thumb

BETTER, WORSE = completion.alias("better"), completion.alias("worse")


def set_bookmark(tx: Connection, group_id: int, note: str, at: datetime) -> Bookmark:
    """Bookmark a group, or replace the note. Raises NotFound."""
    require_group(tx, group_id)
    upsert(tx, bookmark, [{"group_id": group_id, "note": note, "updated_at": at}])
    return Bookmark(note=note, updated_at=at)


def remove_bookmark(tx: Connection, group_id: int) -> None:
    """Forget a bookmark, if there is one. Raises NotFound if the group does not exist."""
    require_group(tx, group_id)
    tx.execute(delete(bookmark).where(bookmark.c.group_id == group_id))


def set_thumb(tx: Connection, completion_id: int, what: Thumb | None, at: datetime) -> None:
    """Up, down, or neither. Raises NotFound."""
    _require(tx, "completion", completion, completion_id)
    if what is None:
        tx.execute(delete(thumb).where(thumb.c.completion_id == completion_id))
    else:
        upsert(tx, thumb, [{"completion_id": completion_id, "thumb": what, "created_at": at}])


def choose(tx: Connection, group_id: int, write: ChoiceWrite, at: datetime) -> Choice:
    """Keep a choice in place of its opposite; one that was made before stays as it is. Raises NotFound and Invalid."""
    require_group(tx, group_id)
    _require_two_of(tx, group_id, write)
    tx.execute(delete(choice).where(_is(better=write.worse, worse=write.better)))
    same = _is(better=write.better, worse=write.worse)
    if tx.execute(select(choice.c.id).where(same)).first() is None:
        values = {"group_id": group_id, "better_id": write.better, "worse_id": write.worse, "created_at": at}
        tx.execute(insert(choice).values(values))
    return Choice.model_validate(dict(tx.execute(_choices().where(same)).mappings().one()))


def choices_of(tx: Connection, group_id: int) -> list[Choice]:
    """What was chosen in a group, oldest first. Raises NotFound."""
    require_group(tx, group_id)
    rows = tx.execute(_choices().where(choice.c.group_id == group_id).order_by(choice.c.id)).mappings()
    return [Choice.model_validate(dict(row)) for row in rows]


def remove_choice(tx: Connection, choice_id: int) -> None:
    """Take a choice back. Raises NotFound."""
    _require(tx, "choice", choice, choice_id)
    tx.execute(delete(choice).where(choice.c.id == choice_id))


def require_group(tx: Connection, group_id: int) -> None:
    """Raises NotFound."""
    _require(tx, "group", prompt_group, group_id)


def _require(tx: Connection, noun: str, table: FromClause, row_id: int) -> None:
    present = [runs.of_present(table)] if "run_id" in table.c else []
    if tx.execute(select(table.c.id).where(table.c.id == row_id, *present)).first() is None:
        raise NotFound(f"There is no {noun} {row_id}.")


def _require_two_of(tx: Connection, group_id: int, write: ChoiceWrite) -> None:
    """Raises Invalid unless both are of the group, and not the same."""
    if write.better == write.worse:
        raise Invalid(FieldError("worse", f"must be another completion than the better one (both are {write.worse})"))
    named: Mapping[str, int] = {"better": write.better, "worse": write.worse}
    found = select(completion.c.id).where(completion.c.group_id == group_id, completion.c.id.in_(named.values()))
    members = set(tx.execute(found).scalars())
    strangers = [
        FieldError(field, f"{id_} is not a completion of group {group_id}")
        for field, id_ in named.items()
        if id_ not in members
    ]
    if strangers:
        raise Invalid(*strangers)


def _choices() -> Select[tuple[object, ...]]:
    indices = (BETTER.c.index.label("better_index"), WORSE.c.index.label("worse_index"))
    return (
        select(choice, *indices)
        .join(BETTER, BETTER.c.id == choice.c.better_id)
        .join(WORSE, WORSE.c.id == choice.c.worse_id)
    )


def _is(*, better: int, worse: int) -> ColumnElement[bool]:
    return and_(choice.c.better_id == better, choice.c.worse_id == worse)
