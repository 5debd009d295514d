"""What every route needs, made once at start."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy import Connection

from backend.clock import Clock
from backend.queue.lease import Terms
from backend.reserve import Reserve
from backend.settings import Settings
from backend.storage.database import Database
from backend.telemetry.events import Broadcast


@dataclass(frozen=True)
class Services:
    """Settings, database, clock, and the bell that wakes the event streams."""

    settings: Settings
    database: Database
    clock: Clock
    broadcast: Broadcast
    reserve: Reserve

    def terms(self) -> Terms:
        """Lease terms as of now; ask inside the transaction, since getting into one may take a while."""
        return Terms(self.clock.seconds(), self.settings.lease_seconds, self.settings.max_failures)

    @contextmanager
    def changing(self, run_id: int) -> Iterator[Connection]:
        """A writing transaction on a run, after which its event streams wake."""
        with self.database.write() as tx:
            yield tx
        self.broadcast.ring(run_id)


async def services_of(request: Request) -> Services:
    """The application's services. Asynchronous, since any other function would wait for a thread."""
    services = request.app.state.services
    assert isinstance(services, Services)  # noqa: S101  # create_app put them there
    return services


ServicesDep = Annotated[Services, Depends(services_of)]
