"""What health asks of the database: windows of a run's last and first steps, through indexes."""

import recorded
from serving import Backend
from sqlalchemy import Connection, event
from sqlalchemy.engine.interfaces import DBAPICursor, ExecutionContext

from backend.health.check import facts_of


def test_health_reads_windows_of_steps_through_indexes(backend: Backend) -> None:
    run_id = recorded.queue(backend.client)
    recorded.train(backend.client, run_id, steps=2, total=2, prompts=2, group_size=2)
    asked: list[tuple[str, object]] = []

    def note(
        _tx: Connection, _cursor: DBAPICursor, statement: str, values: object, _context: ExecutionContext, _many: bool
    ) -> None:
        if statement.startswith("SELECT") and "recent_reward" not in statement:  # the run's own, of ten steps
            asked.append((statement, values))

    database = backend.services.database
    event.listen(database.reader, "before_cursor_execute", note)
    with database.read() as tx:
        facts_of(tx, run_id, backend.services.terms())
    event.remove(database.reader, "before_cursor_execute", note)
    plans = [_plan(database.reader.connect(), statement, values) for statement, values in asked]
    assert not [line for plan in plans for line in plan if line.startswith("SCAN")]
    lines = [line for plan in plans for line in plan if "metric" in line or "prompt_group" in line]
    wide = [line for line in lines if "metric_stretch" not in line]  # how long a series is: a row for 1,024 steps
    assert len(wide) == 3
    assert all("step>" in line or "step<" in line for line in wide), wide


def _plan(connection: Connection, statement: str, values: object) -> list[str]:
    with connection:
        cursor = connection.connection.cursor()
        cursor.execute(f"EXPLAIN QUERY PLAN {statement}", values)
        return [str(row[3]) for row in cursor.fetchall()]
