"""What every route needs: the services, made once at start, bounded parameters, and the reserve of the disk."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Annotated, ParamSpec, TypeVar

from anyio import CapacityLimiter
from fastapi import Depends, Header, Path, Query, Request
from sqlalchemy import Connection
from sqlalchemy.exc import DatabaseError

from backend.bucket.bucket import Bucket
from backend.clock import Clock, Terms
from backend.contract.queries import LAST_STEP, PageQuery
from backend.events import Broadcast
from backend.looks import Looks
from backend.ranks import RanksHeard
from backend.reserve import Reserve, is_disk_full
from backend.settings import Settings
from backend.storage.database import Database

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Services:
    """Settings, database, clock, the bell that wakes the event streams, what is known of the processes of runs, what
    workers found in prompts, and how many uploaded files are read, and windows of completions studied, at once.

    Either takes a processor, and a file up to a gigabyte; the others wait without a thread.
    """

    settings: Settings
    database: Database
    clock: Clock
    broadcast: Broadcast
    reserve: Reserve
    ranks: RanksHeard = field(default_factory=RanksHeard)
    looks: Looks = field(default_factory=Looks)
    conversions: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(2))
    studies: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(1))

    @property
    def bucket(self) -> Bucket | None:
        """Where workers keep checkpoints, if it is a bucket."""
        return None if self.settings.checkpoints is None else Bucket(self.settings.checkpoints)

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
    services: Services = request.app.state.services  # create_app put them there
    return services


ServicesDep = Annotated[Services, Depends(services_of)]
RowId = Annotated[int, Path(ge=1, le=2**63 - 1)]
StepNumber = Annotated[int, Path(ge=0, le=LAST_STEP)]
PageAsked = Annotated[PageQuery, Query()]
IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]


def with_reserve(route: Callable[P, T]) -> Callable[P, T]:
    """A route that is tried again with the reserve where the disk is full. What it had written is taken back before.

    One with a parameter `_ending` only if it is true.
    """

    @wraps(route)
    def stored(*args: P.args, **kwargs: P.kwargs) -> T:
        services: Services = kwargs["services"]  # type: ignore[assignment]  # every such route has them
        try:
            return route(*args, **kwargs)
        except (DatabaseError, OSError) as error:
            needed = kwargs.get("_ending", True) and is_disk_full(error, services.settings.home)
            if not needed or not services.reserve.give_up():
                raise
            return route(*args, **kwargs)

    return stored
