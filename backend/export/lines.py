"""A run as JSON lines, {"kind": "run" | "metrics" | "group", <kind>: {…}}; read page by page, so that a slow reader holds nothing."""

from collections.abc import Iterator

from sqlalchemy import select

from backend.contract.base import Json
from backend.contract.groups import Group
from backend.runs import store as runs
from backend.storage.database import Database, to_json
from backend.storage.tables import attempt, prompt_group
from backend.telemetry import groups, history, metrics

PAGE = 50
Chunks = Iterator[bytes]


def lines(database: Database, run_id: int) -> Chunks:
    """One object a line. Raises NotFound before the first line."""
    with database.read() as tx:
        run = runs.get(tx, run_id)
        series = metrics.read(tx, run_id, metrics.Window())
    return _lines(database, run_id, [_line("run", run.model_dump(mode="json")), _line("metrics", series.model_dump())])


def live_groups(database: Database, run_id: int) -> Iterator[list[Group]]:
    """The groups of the live history, whole, in pages."""
    last = 0
    while True:
        with database.read() as tx:
            query = (
                select(prompt_group)
                .join(attempt, history.of_attempt(prompt_group))
                .where(prompt_group.c.run_id == run_id, history.live(prompt_group.c.step), prompt_group.c.id > last)
                .order_by(prompt_group.c.id)
                .limit(PAGE)
            )
            found = groups.with_completions(tx, tx.execute(query).mappings().all())
        if not found:
            return
        last = found[-1].id
        yield found


def _lines(database: Database, run_id: int, head: list[bytes]) -> Chunks:
    yield from head
    for page in live_groups(database, run_id):
        yield b"".join(_line("group", group.model_dump(mode="json")) for group in page)


def _line(kind: str, value: dict[str, Json]) -> bytes:
    return to_json({"kind": kind, kind: value}).encode() + b"\n"
