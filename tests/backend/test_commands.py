"""The commands that a page offers are those that the backend carries out, in every state that a run can be in."""

from contextlib import suppress
from itertools import product
from typing import get_args

import pytest
from acting import GRPO
from serving import Backend
from sqlalchemy import update

from backend.contract.client import ApiError
from backend.contract.commands import COMMANDS, possible
from backend.contract.records import Requested, Status
from backend.storage.tables import run as table


@pytest.mark.parametrize(("status", "requested"), [*product(get_args(Status), get_args(Requested))])
def test_a_command_is_offered_where_the_backend_changes_the_run_by_it(
    shared_backend: Backend, status: Status, requested: Requested
) -> None:
    client = shared_backend.client
    run_id = client.create_run(GRPO).id
    for verb in COMMANDS:
        with shared_backend.services.database.write() as tx:
            lease = 1e12 if status == "running" else None
            values = {"status": status, "requested": requested, "lease_until": lease}
            tx.execute(update(table).where(table.c.id == run_id).values(values))
        offered = possible(client.run(run_id))
        with suppress(ApiError):  # that it changed nothing is what counts
            client.command(run_id, verb)
        after = client.run(run_id)
        if verb in offered:
            assert (after.status, after.requested) == (offered[verb].to, offered[verb].requested)
        else:
            assert (after.status, after.requested) == (status, requested)


def test_a_run_that_is_about_to_pause_can_be_resumed_and_one_that_is_about_to_stop_only_stopped_at_once(
    shared_backend: Backend,
) -> None:
    run = shared_backend.client.create_run(GRPO).model_copy(update={"status": "running"})
    asked = {
        requested: list(possible(run.model_copy(update={"requested": requested}))) for requested in get_args(Requested)
    }
    assert asked == {"nothing": ["pause", "stop"], "pause": ["resume", "stop"], "stop": ["stop"], "stop_at_once": []}
