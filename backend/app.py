"""The application: services made, database brought up to date, leases extended, the sweep running, routes in place."""

import asyncio
import gc
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from functools import partial

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from backend import document, error_answers, monitoring, workers
from backend.auth import Gate, token_of
from backend.body_limit import BodyLimit
from backend.catalog import router as catalog
from backend.checkpoints.files import router as checkpoints
from backend.clock import Clock
from backend.contract.home import LEAST_TOKEN, CannotStart, alone, in_words, load, make_private
from backend.events import Broadcast
from backend.export import router as export
from backend.health.check import router as health
from backend.lifecycle.deletion import Remover
from backend.lifecycle.routes import router as runs
from backend.people.routes import router as people
from backend.preflight.models import router as models
from backend.preflight.preflight import router as preflight
from backend.properties.routes import router as properties
from backend.queue import lease
from backend.queue.routes import router as queue
from backend.queue.sweep import anything, sweep
from backend.reserve import LOOK_SECONDS, Reserve, is_disk_full, no_room
from backend.server.connections import listen, places, raise_file_limit, serve
from backend.server.log import set_up_log
from backend.server.origin import LOOPBACK
from backend.services import Services
from backend.settings import Settings
from backend.storage.opening import open_database
from backend.sweeps import router as sweeps
from backend.telemetry import traces
from backend.telemetry.routes import router as telemetry
from backend.uploads import store as uploads_store
from backend.uploads.routes import router as uploads

log = logging.getLogger(__name__)

_STREAMS = 512  # event streams that are open at once, and at most half of all connections
LOOK_FOR_DELETED = 0.5  # seconds between two looks for runs to remove

ROUTERS = (
    catalog,
    preflight,
    models,
    runs,
    sweeps,
    telemetry,
    properties,
    health,
    people,
    checkpoints,
    uploads,
    workers.router,
    queue,
    export,
)


def create_app(settings: Settings, clock: Clock | None = None) -> FastAPI:
    """The backend as an ASGI application, with its database open and up to date."""
    services = open_services(settings, clock or Clock(slack=settings.lease_seconds / 4))

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        tasks = [
            asyncio.create_task(_forever("sweep", partial(sweep_once, services), settings.sweep_seconds)),
            asyncio.create_task(_forever("pulse", partial(pulse, services), services.clock.slack / 2)),
            asyncio.create_task(_forever("removal", Remover(services).advance, LOOK_FOR_DELETED)),
            asyncio.create_task(_forever("reserve", services.reserve.take, LOOK_SECONDS)),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            services.database.close()

    # no generated pages; the document is a route of ours, so that it needs the token as every path does
    # each route as its router built it: an included one is built anew by every application, at its first request
    routes = [route for router in ROUTERS for route in router.routes]
    app = FastAPI(title="Groupscope", lifespan=lifespan, routes=routes, openapi_url=None, docs_url=None, redoc_url=None)
    app.state.services = services
    app.state.registry = monitoring.registry_of(services)
    app.router.redirect_slashes = False
    error_answers.install(app)
    app.add_api_route("/healthz", healthz, methods=["GET"])
    app.add_api_route(document.PATH, document.answer, methods=["GET"], name="openapi")
    app.add_api_route(
        monitoring.PATH, monitoring.exposition, methods=["GET"], name="metrics", response_class=monitoring.Exposition
    )
    # the last one added is the outermost: the gate stands before all, but for what counts its refusals, too
    app.add_middleware(BodyLimit, upload_bytes=settings.max_upload_bytes)
    app.add_middleware(Gate, token=token_of(settings), allowed_hosts=settings.backend_allowed_hosts)
    app.add_middleware(monitoring.Requests, registry=app.state.registry)
    return app


async def healthz() -> dict[str, str]:
    """The backend answers. It needs no thread, since all of them may be busy."""
    return {"status": "ok"}


def open_services(settings: Settings, clock: Clock) -> Services:
    """Open the database, bring it up to date, and give running runs fresh leases: nobody could renew them meanwhile."""
    settings.home.mkdir(parents=True, exist_ok=True)
    uploads_store.clear(settings.home)
    traces.clear(settings.home)
    database = open_database(settings.resolved_database_url, busy_seconds=settings.busy_seconds)
    services = Services(settings, database, clock, Broadcast(most=min(_STREAMS, places() // 2)), Reserve(settings.home))
    try:
        with database.write() as tx:
            lease.extend_all(tx, services.terms())
            workers.not_from_the_future(tx, services.clock.seconds())
    except OperationalError as error:
        if is_disk_full(error, settings.home):
            raise no_room(settings.home) from None
        raise
    return services


async def _forever(name: str, task: Callable[[], float | None], pause: float) -> None:
    """A task, and after a pause again; the task may ask for another pause."""
    rest: float | None = None
    while True:
        await asyncio.sleep(pause if rest is None else rest)
        rest = None
        try:
            rest = await run_in_threadpool(task)
        except (OperationalError, PoolTimeout) as error:
            log.warning("the database did not take a %s, which is tried again: %s", name, error)
        except Exception:  # the boundary of a task that must outlive any one failure
            log.exception("a %s failed; it is tried again", name)


def pulse(services: Services) -> None:
    """Do what a heartbeat does, so that leases count only the time in which this works."""
    with services.database.write() as tx:
        lease.rewrite(tx)
    services.clock.pulse()


def sweep_once(services: Services) -> None:
    """Settle what nobody holds."""
    with services.database.read() as tx:
        if not anything(tx, services.terms()):
            return
    with services.database.write() as tx:
        settled = sweep(tx, services.terms(), services.clock.stamp())
    for run_id in settled:
        services.broadcast.ring(run_id)


def main() -> None:
    """Serve until interrupted."""
    set_up_log()
    raise_file_limit()
    with ExitStack() as held:
        with in_words():
            settings = load(Settings)
            _require_guarded(settings)
            make_private(settings.home)
            Reserve(settings.home).give_up_if_full()
            us = f"process {os.getpid()}, {settings.backend_host}, port {settings.backend_port}"
            served, advice = f"a backend already serves {settings.home}", "Stop it, or name another home with --home"
            lock = alone(settings.home / "backend.lock", us, lambda who: f"{served}: {who}. {advice}")
            held.enter_context(lock)
            sockets = listen(settings.backend_host, settings.backend_port)
            app = create_app(settings)
        gc.collect()
        gc.freeze()  # looking through all that was imported took a tenth of a second, of one request in twenty
        serve(app, sockets)


def _require_guarded(settings: Settings) -> None:
    """Other machines come in by a token that somebody set, and that is long enough not to be guessed. Raises CannotStart."""
    if settings.backend_host in LOOPBACK:
        return
    if settings.token is None:
        raise CannotStart(
            f"Listening on {settings.backend_host} lets other machines in: set GROUPSCOPE_TOKEN, or listen on 127.0.0.1"
        )
    if len(settings.token.get_secret_value()) < LEAST_TOKEN:
        raise CannotStart(
            f"Listening on {settings.backend_host} lets other machines in: set a GROUPSCOPE_TOKEN of at least {LEAST_TOKEN} "
            "characters (openssl rand -hex 32 makes one), or listen on 127.0.0.1"
        )


if __name__ == "__main__":
    main()
