"""The console's process: reads the streams, serves pages and the API."""

from __future__ import annotations

import logging
import os
from functools import partial
from pathlib import Path

from litestar import Litestar
from litestar.config.compression import CompressionConfig
from litestar.handlers import HTTPRouteHandler
from litestar.routes import BaseRoute, HTTPRoute
from msgspec.structs import replace

from penstock.bus.protocol import Bus
from penstock.config import Settings
from penstock.console.access import first_steps
from penstock.console.access.control import control
from penstock.console.access.keyring import Keyring
from penstock.console.access.recorder import Recorder
from penstock.console.access.rights import Rights, rights
from penstock.console.alerts.parts import Alerts
from penstock.console.api import router
from penstock.console.bulk.parts import BulkActions
from penstock.console.computing.parts import Computing
from penstock.console.core import shedding
from penstock.console.core.folding import Changes
from penstock.console.live.hub import PACE_SECONDS, SLOW_PACE_SECONDS, Hub
from penstock.console.pages import site
from penstock.console.parts import Console
from penstock.console.past.past_reads import PastReads
from penstock.console.read_models.databases import Databases
from penstock.console.read_models.measurements import Measurements
from penstock.console.read_models.present import Present
from penstock.console.read_models.projection import Projection
from penstock.console.watching import watch
from penstock.console.web import binding, server
from penstock.console.web.access import Access
from penstock.console.web.acting import check_actions
from penstock.console.web.credentials import Authenticator
from penstock.console.web.gate import Gate
from penstock.console.web.once import MAX_BODY_BYTES, ActingRequests
from penstock.console.web.past_requests import PastRequests
from penstock.events.subjects import Subjects
from penstock.jobs.client import Client
from penstock.runtime import console_place, service_process
from penstock.runtime.reloading import Reread
from penstock.runtime.service import Service

log = logging.getLogger("penstock.console")

_COMPRESSION = CompressionConfig(
    backend="gzip",
    gzip_compress_level=5,
    exclude=["^/live$", "^/static/", "/stream$"],  # a compressor would hold events back
)
FIRST_ROWS_SECONDS = 5.0
"""It serves after that in any case: also where the broker is away, rows of before are of use."""
_NICENESS = 5
"""Where cores are short, jobs and their services go first."""


def run(settings: Settings, reread: Reread | None = None) -> None:
    """The whole process."""
    binding.check(settings)
    os.nice(_NICENESS)
    held = binding.Held()
    service_process.run(
        "console", settings, partial(body, held=held), reread=reread, check=held.check
    )


async def body(service: Service, held: binding.Held) -> None:
    """What the service does between its start and its end."""
    settings = service.settings
    port = console_place.port(settings)
    settings = replace(settings, console=replace(settings.console, port=port))
    try:
        bound = server.listening_socket(settings.console)
    except OSError as error:
        raise binding.cannot_listen(settings.console, error) from error
    held.take(settings.console)
    may = await rights(service.bus, settings)
    if may.read_only_because:
        settings = replace(settings, console=replace(settings.console, read_only=True))
    console = assemble(service.bus, settings, console_place.folder(settings), may)
    watch(service, console)
    console_place.remember(settings, server.address(settings.console, bound))
    try:
        service.spawn(console.projection.run(service), "event log")
        await console.projection.has_moved(FIRST_ROWS_SECONDS)
        service.spawn(console.present.run(service), "snapshots")
        service.spawn(console.hub.run(service), "live pages")
        service.spawn(console.alerts.run(service), "alerts")
        service.spawn(console.measurements.run(service, console.projection), "measurements")
        service.spawn(console.control.directory.run(service), "accounts")
        service.spawn(console.bulk.run(service), "bulk actions")
        service.spawn(console.computing.run(service), "computations")
        keyring = Keyring(console.control, binding.authenticator(settings))
        app = Gate(application(console, keyring), settings.console)
        if settings.console.login_required:
            service.spawn(first_steps.show(console.control), "first steps")
        await server.serve(service, app, settings.console, bound)
        await console.alerts.leader.finish()
    finally:
        await service.end_tasks()
        console.close()


def assemble(bus: Bus, settings: Settings, files: Path, may: Rights | None = None) -> Console:
    """The parts of a console; nothing runs yet.

    Args:
        bus: a connection.
        settings: of this process.
        files: the console's folder.
        may: what its key of the broker lets it do; None: what the settings say.
    """
    hub = Hub()
    store = Databases(files, arguments=settings.console.searchable_arguments)
    measurements = Measurements(store)
    access = control(bus, settings, rights=may)

    def folded(_: Changes) -> None:
        hub.changed("log")

    def hold_back(texts: tuple[str, ...]) -> None:
        hub.pace_seconds = SLOW_PACE_SECONDS if shedding.PUSH in texts else PACE_SECONDS
        measurements.keeps_seconds = shedding.SECONDS not in texts

    projection = Projection(
        bus, Subjects(settings.prefix), store, folded, hold_back, lambda: hub.clients > 0
    )
    present = Present(bus, settings, hub.changed, measurements.take)
    return Console(
        bus=bus,
        settings=settings,
        store=store,
        projection=projection,
        present=present,
        hub=hub,
        alerts=Alerts(
            bus,
            settings,
            files,
            lambda: hub.changed("alerts"),
            answers=lambda: projection.standing.is_connected,
        ),
        measurements=measurements,
        client=Client.over(bus, settings, source="console"),
        control=access,
        bulk=BulkActions(
            bus, settings, store, projection, access.audit, lambda: hub.changed("bulk")
        ),
        history=PastReads(bus, Subjects(settings.prefix), projection, present),
        computing=Computing(settings, files, lambda: hub.changed("simulations")),
    )


def application(console: Console, authenticator: Authenticator) -> Litestar:
    """API and pages."""
    stream = console.subjects.console_stream
    recorder = Recorder(console.control.audit, partial(console.bus.extent, stream))
    pages = site.site(console)
    made = Litestar(
        route_handlers=[router.router(console), *pages.handlers],
        middleware=[
            Access(authenticator, console.version, recorder, _refusal(console)),
            PastRequests(),
            ActingRequests(console.bus, console.subjects, console.alerts.sealing.ring),
        ],
        exception_handlers=pages.answers,
        compression_config=_COMPRESSION,
        openapi_config=router.description(),
        logging_config=None,
        request_max_body_size=MAX_BODY_BYTES,
    )
    check_actions(handler for route in made.routes for handler in _of(route))
    return made


def _refusal(console: Console) -> str:
    """Why no act is open to anyone, as a sentence; empty where acts are."""
    if not console.control.read_only:
        return ""
    return f"This console changes nothing: {console.control.rights.read_only_because}."


def _of(route: BaseRoute) -> list[HTTPRouteHandler]:
    return list(route.route_handlers) if isinstance(route, HTTPRoute) else []
