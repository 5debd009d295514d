"""What health asks of the database: windows of a run's last and first steps, through indexes."""

import recorded
from plans import asked_here, plan
from serving import Backend

from backend.health.check import facts_of


def test_health_reads_windows_of_steps_through_indexes(backend: Backend) -> None:
    run_id = recorded.queue(backend.client)
    recorded.train(backend.client, run_id, steps=2, total=2, prompts=2, group_size=2)
    database = backend.services.database
    with asked_here(database.reader) as asked, database.read() as tx:
        facts_of(tx, run_id, backend.services.terms())
    # what reads the run's own recent_reward, of ten steps, is left out
    reads = [one for one in asked if one[0].startswith("SELECT") and "recent_reward" not in one[0]]
    with database.read() as tx:
        plans = [plan(tx, *one) for one in reads]
    assert not [line for steps in plans for line in steps if line.startswith("SCAN")]
    lines = [line for steps in plans for line in steps if "metric" in line or "prompt_group" in line]
    wide = [line for line in lines if "metric_stretch" not in line]  # how long a series is: a row for 1,024 steps
    assert len(wide) == 5  # one of them finds nothing: this run logs no std of its rewards
    assert all("step>" in line or "step<" in line for line in wide), wide
